"""What of a trainer goes into a checkpoint, and how it comes back."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from madrigal import __version__
from madrigal.engine import checkpoint as ckpt
from madrigal.engine.changes import UNSET, changes
from madrigal.errors import UserError

if TYPE_CHECKING:
    from madrigal.engine.trainer import Trainer


def save_trainer(trainer: "Trainer", folder: Path) -> None:
    """Write everything that the steps after this one depend on."""
    tensors = {"model": _saved_state(trainer), "optimizer": _moments(trainer)}
    if trainer.ema is not None:
        tensors["ema"] = trainer.ema.state_dict()
    state = {
        "step": trainer.step,
        "system": trainer.system,
        "version": __version__,
        "world": trainer.ranks.world,
        "best": trainer.best,
        "recipe": trainer.recipe,
        "turns": {turn.name: turn.state_dict() for turn in trainer.turn_states},
    }
    ckpt.write_checkpoint(folder, tensors, {"config.json": trainer.model_config()}, state)


def load_trainer(trainer: "Trainer", folder: Path, *, restore_optimizer: bool) -> None:
    """Take up a checkpoint; without the optimizer only its best weights come, and the step stays."""
    state = ckpt.read_state(folder)
    weights, averages = ckpt.read_tensors(folder, "model"), ckpt.read_tensors(folder, "ema")
    _load_weights(trainer, weights if restore_optimizer else weights | averages, folder)
    if trainer.ema is not None:
        trainer.ema.load_state_dict(weights | averages)
    trainer.is_fresh = False
    if not restore_optimizer:
        return
    moments = ckpt.read_tensors(folder, "optimizer")
    for turn in trainer.turn_states:
        if turn.name not in state["turns"]:
            raise UserError(f"The checkpoint {folder} knows no turn {turn.name!r}; load it without its optimizer.")
        found = state["turns"][turn.name].get("moments", turn.moments)
        if found != turn.moments:
            raise UserError(
                f"The checkpoint {folder} was trained with {found}, not with {turn.moments}: "
                "set plan.optimizer as it was, or load it without its optimizer."
            )
        start = f"{turn.name}/"
        own = {name.removeprefix(start): t for name, t in moments.items() if name.startswith(start)}
        turn.load_state(own, state["turns"][turn.name])
    trainer.step, trainer.best = state["step"], state["best"]


def _moments(trainer: "Trainer") -> dict[str, Tensor]:
    return {f"{turn.name}/{name}": t for turn in trainer.turn_states for name, t in turn.state_tensors().items()}


def _saved_state(trainer: "Trainer") -> dict[str, Any]:
    """The model's state without frozen parts; copies, since a tensor may have two names."""
    left_out = {id(t) for part in trainer.frozen() for t in part.state_dict(keep_vars=True).values()}
    state = trainer.model.state_dict(keep_vars=True)
    return {name: t.detach().clone() for name, t in state.items() if id(t) not in left_out}


def _other_option(trainer: "Trainer", folder: Path) -> str:
    """The options of the model that are not those of the checkpoint: a person chose these, not the tensors' names."""
    changed = changes(json.loads((folder / "config.json").read_text()), trainer.model_config())
    # An option that is newer than the checkpoint is to blame only when no other is.
    changed = {key: pair for key, pair in changed.items() if UNSET not in pair} or changed
    return ", ".join(f"model.{key} is {old} there and {new} here" for key, (old, new) in changed.items())


def _load_weights(trainer: "Trainer", weights: dict[str, Tensor], folder: Path) -> None:
    own = _saved_state(trainer)
    shapes = {name: tensor.shape for name, tensor in own.items()}
    given = {name: tensor.shape for name, tensor in weights.items()}
    if shapes != given:
        wrong = next(name for name in [*shapes, *given] if shapes.get(name) != given.get(name))
        raise UserError(
            f"The checkpoint {folder} does not fit this model: {_other_option(trainer, folder) or f'{wrong} differs'}; "
            "use the recipe.yaml that lies in its run folder."
        )
    trainer.model.load_state_dict(weights, strict=False)
