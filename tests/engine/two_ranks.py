"""Trainings on two ranks, one after another in one launch; what came out is written for the tests to look at.

Every scenario writes `NAME-RANK.json` and, where weights matter, `NAME-RANK.safetensors`.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from toys import GanTrainer, Measured, RegressionTrainer, make, waves, whole_state

OUT = Path(sys.argv[1])
RANK = int(os.environ["RANK"])
GAN = {"num_train_steps": 8, "best_metric": "valid/mse", "keep_checkpoints": 1, "batch_size": 3}


def write(name: str, facts: dict[str, Any], trainer: Any = None) -> None:
    (OUT / f"{name}-{RANK}.json").write_text(json.dumps(facts))
    if trainer is not None:
        save_file(whole_state(trainer), OUT / f"{name}-{RANK}.safetensors")


def ask(*_: object) -> str:
    raise AssertionError("nobody is asked anything")


def everything_on() -> None:
    """Clip, penalty, averages, validation, samples, best checkpoint: as one process with twice the accumulation."""
    trainer = make(GanTrainer, OUT / "gan", **GAN)
    figures: list[dict[str, float]] = []
    trainer.train(figures.append)
    with trainer.ema.swapped():
        averaged = trainer.model.generator[0].weight.sum().item()
    facts = {
        "figures": figures,
        "averaged": averaged,
        "is_main": trainer.is_main,
        "distributed": trainer.is_distributed,
    }
    write("gan", facts, trainer)


def resumed() -> None:
    """A run of two processes that is stopped and resumed."""
    trainer = make(GanTrainer, OUT / "resumed", **GAN)

    def log(figures: dict[str, float]) -> None:
        # Only one of the ranks is asked to stop; both have to.
        if RANK == 1 and trainer.step == 5 and "generator/loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    trainer.train(log)
    stopped_at = trainer.step
    again = make(GanTrainer, OUT / "resumed", resume=True, **GAN)
    resumed_at = again.step
    again.train()
    write("resumed", {"stopped_at": stopped_at, "resumed_at": resumed_at, "step": again.step}, again)


def rates() -> None:
    facts = {}
    for accumulation in (1, 3):
        options = {"warmup_steps": 3, "lr": 1e-2, "initial_lr": 1e-3, "final_lr": 1e-4, "use_ema": False}
        trainer = make(RegressionTrainer, OUT / f"rates{accumulation}", grad_accum_every=accumulation, **options)
        logged = [trainer.train_step()["lr"] for _ in range(12)]
        facts[str(accumulation)] = {"logged": logged, "used": trainer.turn_states[0].optimizer.param_groups[0]["lr"]}
    write("rates", facts)


def not_finite_on_one() -> None:
    trainer = make(RegressionTrainer, OUT / "bad", use_ema=False, max_skipped_steps=3)
    trainer.poison = {2: float("nan")} if RANK == 1 else {}
    skipped = [trainer.train_step().get("skipped", 0.0) for _ in range(5)]
    facts = {"skipped": skipped, "counted": trainer.turn_states[0].skipped}
    trainer.poison = {step: float("inf") for step in range(99)} if RANK == 0 else {}
    try:
        trainer.train()
    except Exception as error:
        facts["error"] = f"{type(error).__name__}: {error}"
    write("bad", facts, trainer)


def half_precision() -> None:
    trainer = make(GanTrainer, OUT / "half", mixed_precision="fp16", num_train_steps=4, compile=False)
    trainer.train()
    write("half", {"scales": [turn.precision.scale for turn in trainer.turn_states]}, trainer)


def one_rank_without_validation_items() -> None:
    trainer = make(RegressionTrainer, OUT / "uneven", val_dataset=waves(3, first=500), batch_size=4)
    write("uneven", trainer.validation())


def by_a_budget() -> None:
    """Micro-batches of many sizes, also in validation."""
    trainer = make(RegressionTrainer, OUT / "budget", dataset=Measured(40), seconds_per_batch=3.0, num_train_steps=5)
    trainer.train()
    write("budget", trainer.validation(), trainer)


def trackers_do_not_part_the_ranks() -> None:
    """And loader workers do not keep the processes from ending."""
    trainer = make(RegressionTrainer, OUT / "tracked", num_train_steps=2, log_with=("tensorboard",), dl_num_workers=1)
    trainer.train()
    trainer.save(OUT / "after")
    globals()["kept"] = trainer
    write("tracked", {"events": len(list((OUT / "tracked").rglob("*tfevents*")))})


def main() -> None:
    builtins.input = ask
    scenarios: list[Callable[[], None]] = [
        everything_on,
        resumed,
        rates,
        not_finite_on_one,
        half_precision,
        one_rank_without_validation_items,
        by_a_budget,
        trackers_do_not_part_the_ranks,
    ]
    for scenario in scenarios:
        scenario()


if __name__ == "__main__":
    main()
