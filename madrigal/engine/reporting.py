"""What a run tells while it trains: the line that a person watches, `metrics.jsonl`, trackers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from madrigal.engine.machine import matmul_rate
from madrigal.engine.task import Figures

if TYPE_CHECKING:
    from madrigal.engine.trainer import Trainer

LogFn = Callable[[Figures], None]


def report_step(trainer: "Trainer", figures: Figures, log_fn: LogFn | None) -> None:
    """Show a step that was taken; its figures are published every `log_losses_every` steps."""
    progress, plan = trainer.progress, trainer.plan
    machine = matmul_rate(str(trainer.device), 32 if plan.mixed_precision == "fp32" else 16)
    if trainer.is_main:
        shown = {k: v for k, v in figures.items() if not k.endswith(("lr", "grad_norm"))}
        progress.step(trainer.step, shown, trainer.step_units, trainer.step_flops, machine)
    if trainer.step % plan.log_losses_every == 0 or trainer.step == trainer.num_train_steps:
        speed = {f"{trainer.unit}/s": progress.units_per_second, "matmul_share": progress.flops_per_second / machine}
        publish(trainer, figures | {name: value for name, value in speed.items() if value}, log_fn)


def report_validation(trainer: "Trainer", figures: Figures, log_fn: LogFn | None) -> None:
    """Publish what a validation gave, on a line that stays."""
    if figures:
        publish(trainer, figures, log_fn)
        trainer.print(f"step {trainer.step}  " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))


def publish(trainer: "Trainer", figures: Figures, log_fn: LogFn | None) -> None:
    """To the run's folder, to the trackers, and to whoever asked."""
    if trainer.is_main:
        trainer.run.log(trainer.step, figures)
    trainer.tracking.log(figures, trainer.step)
    if log_fn is not None:
        log_fn(figures)
