"""Going on with a run: from its newest whole checkpoint, telling what is not as it was before."""

import json
from typing import TYPE_CHECKING, Any

from madrigal.engine import checkpoint as ckpt
from madrigal.engine.changes import changes, told
from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.engine.trainer import Trainer


def resume(trainer: "Trainer") -> None:
    """Take up the newest whole checkpoint of the run, and forget what came after it."""
    run = trainer.run
    newest = ckpt.newest_whole(run.checkpoints, trainer.print)
    if newest is None and run.has_checkpoint:
        raise UserError(
            f"No checkpoint in {run.checkpoints} is whole; start over with --overwrite, or name another run."
        )
    if newest is None:
        trainer.print(f"{run.path} holds no checkpoint yet: starting at step 0")
    else:
        trainer.load(newest)
        trainer.print(f"Resumed {run.path} at step {trainer.step}")
        _tell_changes(trainer, ckpt.read_state(newest))
    trainer.ranks.wait()
    if trainer.is_main:
        ckpt.set_aside_after(run.checkpoints, newest)
        run.forget_after(trainer.step)


def _tell_changes(trainer: "Trainer", state: dict[str, Any]) -> None:
    """Name in one line what goes on otherwise than it went up to the checkpoint, and remember how it went."""
    former: dict[str, Any] = state["recipe"]
    changed = changes(_whole(former, trainer), _whole(trainer.recipe, trainer))
    if changed:
        trainer.former_recipe = (trainer.step, former)
    world = state.get("world", trainer.ranks.world)
    if world != trainer.ranks.world:
        changed["processes"] = (world, trainer.ranks.world)
    if changed:
        trainer.print(f"Not as before: {told(changed)}")


def _whole(recipe: dict[str, Any], trainer: "Trainer") -> dict[str, Any]:
    """A recipe with the plan's defaults filled in: one that an older version wrote lacks the newer keys."""
    fields = type(trainer.plan).model_fields
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    # Through JSON, as a checkpoint keeps it: a tuple is a list there.
    whole: dict[str, Any] = json.loads(json.dumps({**recipe, "plan": {**defaults, **(recipe.get("plan") or {})}}))
    return whole
