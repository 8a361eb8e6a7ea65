"""The training loop. There is one; a trainer of a system says only what is its own.

A step is one or more turns: a language model takes one, a codec takes the generator's and then each
discriminator's. For each turn that is due: the losses of all micro-batches, their gradients, one message
among the ranks, a check that all is finite, clipping, the optimizer. Then the average of the weights moves.
That is `train_step`; `train` adds what happens between steps.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from madrigal.data.collate import collate
from madrigal.engine import checkpoint as ckpt
from madrigal.engine.artifacts import Sample, write_samples
from madrigal.engine.distribution import Ranks
from madrigal.engine.ema import ExponentialMovingAverage
from madrigal.engine.feed import Batch, TrainingData
from madrigal.engine.flops import CountFlops
from madrigal.engine.machine import environment, matmul_rate, prepare_process
from madrigal.engine.memory import recompute_in_backward
from madrigal.engine.plan import Plan
from madrigal.engine.progress import Progress
from madrigal.engine.randomness import kept_randomness, seed_everything
from madrigal.engine.run import RunFolder
from madrigal.engine.saving import load_trainer, save_trainer
from madrigal.engine.stopping import stopping_cleanly
from madrigal.engine.tracking import Tracking, make_accelerator, with_precision_of
from madrigal.engine.turn import Turn, TurnState, only_this_turn
from madrigal.errors import UserError

Terms = dict[str, Tensor]
Figures = dict[str, float]
LogFn = Callable[[Figures], None]


class Trainer:
    """Trains `model` by `plan` and keeps everything of the run in one folder.

    A subclass defines `turns`, `loss`, and, where they mean something, the other methods of the first part.
    It is no `nn.Module`: `trainer.eval()` only sets the model's mode.
    """

    system: ClassVar[str] = "model"
    unit: ClassVar[str] = "items"
    turns_share_batch: bool = True

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
        self.is_fresh = True
        for part in self.frozen():
            part.requires_grad_(False)
        self.turn_states = [TurnState(t, plan, self.num_train_steps, self.device.type) for t in self.turns()]
        self.ema = self._average_of_weights()
        self._prepare_blocks()
        self.recipe = recipe or {"system": self.system, "plan": plan.recorded()}
        self.progress = Progress(self.num_train_steps, self.unit)
        self.tracking = Tracking(self.accelerator, self.system)
        if resume:
            self._resume()
        elif overwrite and self.is_main:
            self.run.clear()  # only now, when nothing stands in the way of the new run

    # What a trainer of a system says of itself.

    def turns(self) -> list[Turn]:
        """The turns of a step, in order."""
        return [Turn(self.system, dict(self.model.named_parameters()), max_grad_norm=self.plan.max_grad_norm)]

    def loss(self, turn: str, batch: Batch) -> Terms:
        """The named terms of a turn's loss on one micro-batch; the engine weighs and adds them."""
        raise NotImplementedError(f"{type(self).__name__} has to say what its loss is")

    def weight(self, turn: str, term: str) -> float:
        """How much a term counts."""
        return 1.0

    def validate(self, batch: Batch) -> Terms:
        """Figures of one validation batch; the engine averages them over the whole set."""
        return self.loss(self.turn_states[0].name, batch)

    def sample(self, batch: Batch) -> list[Sample]:
        """Things to hear, look at or read: one `Sample` for each item of the batch."""
        return []

    def first_step(self, batches: list[Batch]) -> None:
        """Before step 0, on the main rank: set what depends on data, from the step's global micro-batches."""

    def after_turn(self, turn: str, applied: bool) -> Figures:
        """After a turn's optimizer step, or after it was skipped; what it returns is logged."""
        return {}

    def units(self, batch: Batch) -> float:
        """How much of `unit` a micro-batch holds, for the throughput."""
        return float(_size(batch))

    def frozen(self) -> list[nn.Module]:
        """Parts that take no gradient, stay in eval mode, and are in no optimizer and no checkpoint."""
        return []

    def averaged(self) -> dict[str, nn.Module]:
        """The modules that the average is kept of, by their prefix in the model."""
        return {"": self.model}

    def kind_of_step(self, turn: str) -> str:
        """A name for what a turn computes at this step, where that changes: a penalty every n-th step, say."""
        return ""

    def blocks(self) -> list[nn.Module]:
        """Modules worth compiling, or recomputing in backward."""
        return []

    def model_config(self) -> dict[str, Any]:
        """What rebuilds the model, for `config.json` in a checkpoint."""
        config = getattr(self.model, "config", None)
        return config.model_dump(mode="json") if config is not None else {}

    def collate(self, items: list[Any]) -> Batch:
        """Items of the dataset to a batch."""
        return collate(items)

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
        turn.optimizer.zero_grad(set_to_none=True)  # a step that an error cut short may have left some
        with only_this_turn(turn, self.turn_states), self._counting_flops(turn):
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
        applied = turn.apply(self.step, _is_finite(figures["loss"], norm_value), norm)
        seed_everything(self.plan.seed, self.step, turn.name, "after")
        figures |= {"lr": turn.learning_rate(self.step)} | self.after_turn(turn.name, applied)
        if turn.skipped:
            figures["skipped"] = float(turn.skipped)
        if turn.skipped_in_a_row >= self.plan.max_skipped_steps:
            raise self._failure(f"the {turn.name} loss was not finite {turn.skipped_in_a_row} times in a row")
        prefix = f"{turn.name}/" if len(self.turn_states) > 1 else ""
        return {prefix + name: value for name, value in figures.items()}

    # The loop around the steps.

    def train(self, log_fn: LogFn | None = None) -> Self:
        """Train to the end of the plan, or until SIGINT or SIGTERM: then save and return."""
        if self.step >= self.num_train_steps:
            self.print(f"{self.run.path} is done: raise plan.num_train_steps above {self.num_train_steps} to go on")
            return self
        if self.is_main:
            self.run.write_recipe(self.recipe, environment())
        self.tracking.start(self.recipe)
        try:
            with stopping_cleanly(self.print) as asked_to_stop:
                self._train(log_fn, asked_to_stop)
        finally:
            self.data.close()
            self.progress.close()
            self.tracking.finish()
        return self

    def _train(self, log_fn: LogFn | None, asked_to_stop: Callable[[], bool]) -> None:
        self.progress.restart_clock()
        while self.step < self.num_train_steps:
            self._log(self.train_step(), log_fn)
            last, stopping = self.step == self.num_train_steps, self.ranks.any(asked_to_stop())
            is_best = (self.step % self.plan.save_results_every == 0 or last) and self._validate_and_sample(log_fn)
            if last or stopping or ((self.step % self.plan.save_model_every == 0 or is_best) and not self._is_skipping):
                self._save_in_run()
            if stopping and not last:
                self.print(f"Stopped at step {self.step}; go on with --resume --run {self.run.path}")
                break

    def validation(self) -> Figures:
        """Figures over the whole validation set: online as `valid/…`, averaged as `valid/ema/…`."""
        figures: Figures = {}
        for prefix, weights in self._weights():
            sums: Figures = {}
            items = 0
            with weights, self._evaluating():
                for number, batch in enumerate(self.data.validation_batches()):
                    seed_everything(self.plan.seed, "valid", number * self.ranks.world + self.ranks.rank)
                    items += _size(batch)
                    for name, term in self.validate(batch).items():
                        sums[name] = sums.get(name, 0.0) + float(term) * _size(batch)
            means = self.ranks.weighted_means(sums, items)
            figures |= {prefix + name: value for name, value in means.items()}
        return figures

    def write_samples(self) -> list[Path]:
        """Write the first `num_samples` validation items to `samples/step-…/`, online beside averaged."""
        if not self.is_main or (batch := self.data.sample_batch()) is None:
            return []
        made = []
        for _, weights in self._weights():
            with weights, self._evaluating():
                seed_everything(self.plan.seed, "sample")
                made.append(self.sample(batch))
        return write_samples(self.run.samples / ckpt.checkpoint_name(self.step), *made)

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

    def _validate_and_sample(self, log_fn: LogFn | None) -> bool:
        """True when the weights are the best so far."""
        figures = self.validation()
        if figures:
            self._publish(figures, log_fn)
            self.print(f"step {self.step}  " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        self.write_samples()
        self.progress.restart_clock()
        return bool(figures) and self._is_best(figures)

    @property
    def _is_skipping(self) -> bool:
        """Amid skipped steps nobody knows whether the weights are still good."""
        return any(turn.skipped_in_a_row for turn in self.turn_states)

    def _save_in_run(self) -> None:
        if not bool(torch.stack([p.isfinite().all() for p in self.model.parameters()]).all()):
            # It would take the place of a good one.
            raise self._failure("the weights are not finite numbers")
        self.save(self.run.checkpoints / ckpt.checkpoint_name(self.step))
        if self.is_main:
            best = ckpt.checkpoint_name(self.best["step"]) if self.best else None
            ckpt.prune(self.run.checkpoints, self.plan.keep_checkpoints, best)
        self.progress.restart_clock()

    def _resume(self) -> None:
        newest = ckpt.newest_whole(self.run.checkpoints, self.print)
        if newest is None and self.run.has_checkpoint:
            raise UserError(
                f"No checkpoint in {self.run.checkpoints} is whole; start over with --overwrite, or name another run."
            )
        if newest is None:
            self.print(f"{self.run.path} holds no checkpoint yet: starting at step 0")
        else:
            self.load(newest)
            self.print(f"Resumed {self.run.path} at step {self.step}")
        self.ranks.wait()
        if self.is_main:
            ckpt.set_aside_after(self.run.checkpoints, newest)
            self.run.forget_after(self.step)

    def _log(self, figures: Figures, log_fn: LogFn | None) -> None:
        machine = matmul_rate(str(self.device), 32 if self.plan.mixed_precision == "fp32" else 16)
        if self.is_main:
            shown = {k: v for k, v in figures.items() if not k.endswith(("lr", "grad_norm"))}
            self.progress.step(self.step, shown, self.step_units, self.step_flops, machine)
        if self.step % self.plan.log_losses_every == 0 or self.step == self.num_train_steps:
            speed = {f"{self.unit}/s": self.progress.units_per_second}
            speed["matmul_share"] = self.progress.flops_per_second / machine
            self._publish(figures | {name: value for name, value in speed.items() if value}, log_fn)

    def _publish(self, figures: Figures, log_fn: LogFn | None) -> None:
        if self.is_main:
            self.run.log(self.step, figures)
        self.tracking.log(figures, self.step)
        if log_fn is not None:
            log_fn(figures)

    def _is_best(self, figures: Figures) -> bool:
        metric = self.plan.best_metric
        if metric is None:
            return False
        if metric not in figures:
            self._save_in_run()
            raise UserError(f"best_metric is {metric!r}, but validation gives {', '.join(sorted(figures))}.")
        if self._is_skipping or not _is_finite(figures[metric]):
            return False
        sign = -1.0 if self.plan.best_is_highest else 1.0
        if self.best is not None and sign * figures[metric] >= sign * self.best["value"]:
            return False
        self.best = {"metric": metric, "value": figures[metric], "step": self.step}
        return True

    def _failure(self, what: str) -> UserError:
        newest = ckpt.checkpoints(self.run.checkpoints)
        where = f"the last good checkpoint is {newest[-1]}" if newest else "no checkpoint was written yet"
        return UserError(f"Training stopped at step {self.step}: {what}; {where}. Lower plan.lr, or look for bad data.")

    def _weights(self) -> Iterator[tuple[str, AbstractContextManager[None]]]:
        yield "valid/", nullcontext()
        if self.ema is not None:
            yield "valid/ema/", self.ema.swapped()

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Eval mode without gradients, and every mode and generator as it was afterwards."""
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            with kept_randomness(), torch.no_grad():
                yield
        finally:
            for module, mode in modes.items():
                module.training = mode

    @contextmanager
    def _counting_flops(self, turn: TurnState) -> Iterator[None]:
        """Count a turn's operations the first time that this kind of it is taken."""
        kind = self.kind_of_step(turn.name)
        if kind in turn.flops or self.plan.compile:
            yield
            return
        with CountFlops() as counter:
            yield
        turn.flops[kind] = counter.total

    def _average_of_weights(self) -> ExponentialMovingAverage | None:
        if not self.plan.use_ema:
            return None
        return ExponentialMovingAverage(
            self.averaged(),
            without=self.frozen(),
            beta=self.plan.ema_beta,
            update_after_step=self.plan.ema_update_after_step,
            update_every=self.plan.ema_update_every,
        )

    def _prepare_blocks(self) -> None:
        for block in self.blocks():
            if self.plan.gradient_checkpointing:
                recompute_in_backward(block)
            if self.plan.compile:
                block.compile()


def _size(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _is_finite(*values: float) -> bool:
    return all(abs(value) < float("inf") for value in values)
