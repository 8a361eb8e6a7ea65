"""The training loop. There is one; a trainer of a system says only what is its own.

A step is one or more turns: a language model takes one, a codec takes the generator's and then each
discriminator's. For each turn that is due: the losses of all micro-batches, their gradients, one message
among the ranks, a check that all is finite, clipping, the optimizer. Then the average of the weights moves.
That is `train_step`; `train` adds what happens between steps.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from madrigal.engine import evaluating, keeping
from madrigal.engine.distribution import Ranks
from madrigal.engine.ema import average_by
from madrigal.engine.feed import Batch, TrainingData
from madrigal.engine.flops import counting_flops
from madrigal.engine.machine import environment, prepare_process
from madrigal.engine.memory import prepare_blocks
from madrigal.engine.plan import Plan
from madrigal.engine.progress import Progress
from madrigal.engine.randomness import kept_randomness, seed_everything
from madrigal.engine.reporting import LogFn, report_step, report_validation
from madrigal.engine.resuming import resume as resume_run
from madrigal.engine.run import RunFolder
from madrigal.engine.saving import load_trainer, save_trainer
from madrigal.engine.stopping import stopping_cleanly
from madrigal.engine.task import Figures, Task, Terms
from madrigal.engine.tracking import Tracking, make_accelerator, unused_settings, with_precision_of
from madrigal.engine.turn import TurnState, only_this_turn

__all__ = ["Figures", "Terms", "Trainer"]


class Trainer(Task):
    """Trains `model` by `plan` and keeps everything of the run in one folder.

    A subclass defines `turns`, `loss`, and, where they mean something, the other methods of `Task`.
    It is no `nn.Module`: `trainer.eval()` only sets the model's mode.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        plan: Plan,
        dataset: Dataset[Any] | None = None,
        val_dataset: Dataset[Any] | None = None,
        train_dataloader: Any = None,
        val_dataloader: Any = None,
        open_data: Callable[[Path], tuple[Any, Any]] | None = None,
        results_folder: str | Path = "./results",
        resume: bool = False,
        overwrite: bool = False,
        recipe: dict[str, Any] | None = None,
        accelerator: Any = None,
        accelerate_kwargs: dict[str, Any] | None = None,
    ) -> None:
        prepare_process()
        self.plan, self.model = plan, model
        self.accelerator = accelerator or make_accelerator(plan, results_folder, accelerate_kwargs or {})
        plan = self.plan = with_precision_of(self.accelerator, plan)
        self.device: torch.device = self.accelerator.device
        self.ranks = Ranks(self.accelerator.process_index, self.accelerator.num_processes, self.device)
        if plan.deterministic:
            torch.use_deterministic_algorithms(True)
        model.to(self.device)
        self.ranks.broadcast_([t.data for t in model.state_dict(keep_vars=True).values()])
        self.run = RunFolder(results_folder)
        self.resumed_as = self.run.path  # a part of a larger run is gone on with as a whole
        with self.ranks.main_first():
            if self.is_main:
                self.run.open(resume=resume, overwrite=overwrite)
            if open_data is not None:
                dataset, found = open_data(self.run.path)
                val_dataset = found if val_dataset is None else val_dataset
        self.data = TrainingData(
            plan,
            self.ranks,
            self.collate,
            dataset=dataset,
            val_dataset=val_dataset,
            train_dataloader=train_dataloader,
            val_dataloader=val_dataloader,
        )
        self.num_train_steps = self.data.num_train_steps()
        self.step = 0
        self.best: dict[str, Any] | None = None
        self.former_recipe: tuple[int, dict[str, Any]] | None = None
        self.is_fresh = True
        for part in self.frozen():
            part.requires_grad_(False)
        self.turn_states = [TurnState(t, plan, self.num_train_steps, self.device.type) for t in self.turns()]
        self.ema = average_by(plan, self.averaged(), without=self.frozen())
        prepare_blocks(self.blocks(), recompute=plan.gradient_checkpointing, compile=plan.compile)
        self.recipe = recipe or {"system": self.system, "plan": plan.recorded()}
        if "mixed_precision" in self.recipe.get("plan", {}):
            # What `auto` was here: the run is repeated, and gone on with, in the same numbers.
            self.recipe["plan"] = {**self.recipe["plan"], "mixed_precision": plan.mixed_precision}
        self.progress = Progress(self.num_train_steps, self.unit)
        self.tracking = Tracking(self.accelerator, self.system)
        is_given = accelerator is not None
        for line in unused_settings(self.accelerator, plan, given=is_given, options=accelerate_kwargs):
            self.print(line)
        if resume:
            resume_run(self)
        elif overwrite and self.is_main:
            self.run.clear()  # only now, when nothing stands in the way of the new run

    # One step.

    def train_step(self) -> Figures:
        """Take one step on every rank; returns its figures by name."""
        if self.step == 0 and self.is_fresh:
            self._look_at_first_data()
        self.model.train()
        for part in self.frozen():
            part.eval()
        figures: Figures = {}
        shared: list[Batch] | None = None
        self.step_units = self.step_flops = 0.0
        for turn in self.turn_states:
            if not turn.turn.is_taken(self.step):
                continue
            if self.turns_share_batch:
                batches = shared = shared or self.data.feed("all turns").micro_batches(self.step)
            else:
                batches = self.data.feed(turn.name).micro_batches(turn.turn.times_taken(self.step))
            figures |= self._take(turn, batches)
            self.step_units = max(self.step_units, sum(map(self.units, batches)) * self.ranks.world)
            self.step_flops += turn.flops.get(self.kind_of_step(turn.name), 0)
        self.step += 1
        if self.ema is not None:
            self.ema.update(self.step)
        return figures

    def _take(self, turn: TurnState, batches: list[Batch]) -> Figures:
        """Gradients of all micro-batches, then at most one optimizer step."""
        sums: dict[str, Tensor] = {}
        # What a compiled block does cannot be counted.
        kind = None if self.plan.compile else self.kind_of_step(turn.name)
        turn.optimizer.zero_grad(set_to_none=True)  # a step that an error cut short may have left some
        with only_this_turn(turn, self.turn_states), counting_flops(turn.flops, kind):
            for micro, batch in enumerate(batches):
                # The micro-batch's number over all ranks: two ranks draw what one rank draws in two rounds.
                seed_everything(self.plan.seed, self.step, turn.name, micro * self.ranks.world + self.ranks.rank)
                with turn.precision.autocast():
                    terms = self.loss(turn.name, batch)
                    terms["loss"] = torch.stack([self.weight(turn.name, n) * t for n, t in terms.items()]).sum()
                (terms["loss"] * (turn.precision.scale / len(batches))).backward()
                for name, term in terms.items():
                    sums[name] = sums.get(name, torch.zeros((), device=self.device)) + term.detach() / len(batches)
        means = self.ranks.average_gradients_(turn.trainable, torch.stack(list(sums.values())).float())
        norm = turn.gradient_norm()
        # The one place where a turn waits for the device: losses and norm in a single transfer.
        *losses, norm_value = torch.cat([means, norm.reshape(1).float()]).tolist()
        figures = dict(zip(sums, losses, strict=True)) | {"grad_norm": norm_value}
        applied = turn.apply(self.step, keeping.is_finite(figures["loss"], norm_value), norm)
        seed_everything(self.plan.seed, self.step, turn.name, "after")
        figures |= {"lr": turn.learning_rate(self.step)} | self.after_turn(turn.name, applied)
        if turn.skipped:
            figures["skipped"] = float(turn.skipped)
        if turn.skipped_in_a_row >= self.plan.max_skipped_steps:
            what = f"the {turn.name} loss was not finite {turn.skipped_in_a_row} times in a row"
            raise keeping.failure(self, what)
        prefix = f"{turn.name}/" if len(self.turn_states) > 1 else ""
        return {prefix + name: value for name, value in figures.items()}

    # The loop around the steps.

    def train(self, log_fn: LogFn | None = None) -> Self:
        """Train to the end of the plan, or until SIGINT or SIGTERM: then save and return."""
        if self.step >= self.num_train_steps:
            self.print(f"{self.run.path} is done: raise plan.num_train_steps above {self.num_train_steps} to go on")
            return self
        if self.is_main:
            self.run.write_recipe(self.recipe, environment(), former=self.former_recipe)
        self.tracking.start(self.recipe)
        try:
            with self._seen_to_train(), stopping_cleanly(self.print) as asked_to_stop:
                self._train(log_fn, asked_to_stop)
        finally:
            self.data.close()
            self.progress.close()
            self.tracking.finish()
        return self

    def _seen_to_train(self) -> AbstractContextManager[None]:
        return self.run.held() if self.is_main else nullcontext()

    def _train(self, log_fn: LogFn | None, asked_to_stop: Callable[[], bool]) -> None:
        self.progress.restart_clock()
        while self.step < self.num_train_steps:
            report_step(self, self.train_step(), log_fn)
            last, stopping = self.step == self.num_train_steps, self.ranks.any(asked_to_stop())
            is_best = (self.step % self.plan.save_results_every == 0 or last) and self._validate_and_sample(log_fn)
            is_due = self.step % self.plan.save_model_every == 0 or is_best
            if last or stopping or (is_due and not keeping.is_skipping(self)):
                keeping.save_in_run(self)
            if stopping and not last:
                self.print(f"Stopped at step {self.step}; go on with --resume --run {self.resumed_as}")
                break

    def _validate_and_sample(self, log_fn: LogFn | None) -> bool:
        """True when the weights are the best so far."""
        figures = self.validation()
        report_validation(self, figures, log_fn)
        self.write_samples()
        self.progress.restart_clock()
        return keeping.note_best(self, figures)

    def validation(self) -> Figures:
        """Figures over the whole validation set: online as `valid/…`, averaged as `valid/ema/…`."""
        return evaluating.validation(self)

    def write_samples(self) -> list[Path]:
        """Write the first `num_samples` validation items to `samples/step-…/`, online beside averaged."""
        return evaluating.write_samples(self)

    def save(self, path: str | Path) -> None:
        """Write a checkpoint folder at `path`."""
        if self.is_main:
            save_trainer(self, Path(path))
        self.ranks.wait()

    def load(self, path: str | Path, *, restore_optimizer: bool = True) -> None:
        """Take up a checkpoint folder. Without its optimizer only the weights come: fine-tuning."""
        load_trainer(self, Path(path), restore_optimizer=restore_optimizer)

    @contextmanager
    def wandb_tracker(self, project: str, run: str | None = None, hps: dict[str, Any] | None = None) -> Iterator[None]:
        """Inside, a Weights & Biases run of this name is open, with the recipe among its settings."""
        self.tracking.start({**self.recipe, **(hps or {})}, project, wandb={"name": run})
        try:
            yield
        finally:
            self.tracking.finish()

    # Where it runs.

    @property
    def is_main(self) -> bool:
        return self.ranks.is_main

    @property
    def is_local_main(self) -> bool:
        return bool(self.accelerator.is_local_main_process)

    @property
    def is_distributed(self) -> bool:
        return self.ranks.world > 1

    def eval(self) -> Self:
        """Set the model to eval mode; the next step sets it back."""
        self.model.eval()
        return self

    def to(self, *_: Any) -> Self:
        """For scripts that call it: the trainer already is where Accelerate put it."""
        return self

    cuda = to

    def print(self, text: str) -> None:
        """Say a line once, on the main rank."""
        if self.is_main:
            self.progress.say(text)

    # What the loop is made of.

    def _look_at_first_data(self) -> None:
        """On one rank for all: k-means and the like must not depend on the number of processes."""
        if self.is_main:
            with kept_randomness(), torch.no_grad():
                seed_everything(self.plan.seed, "first step")
                stream = "all turns" if self.turns_share_batch else self.turn_states[0].name
                self.first_step(self.data.feed(stream).global_micro_batches(0))
        self.ranks.broadcast_([t.data for t in self.model.state_dict(keep_vars=True).values()])
        if self.ema is not None:
            self.ema.update(0)  # the average starts from what was set just now
