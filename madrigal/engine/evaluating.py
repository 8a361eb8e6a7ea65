"""Validation and samples: the model looked at, and left as it was."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from madrigal.engine import artifacts
from madrigal.engine.checkpoint import checkpoint_name
from madrigal.engine.feed import batch_size
from madrigal.engine.randomness import kept_randomness, seed_everything
from madrigal.engine.task import Figures

if TYPE_CHECKING:
    from madrigal.engine.trainer import Trainer


def validation(trainer: "Trainer") -> Figures:
    """Figures over the whole validation set: online as `valid/…`, averaged as `valid/ema/…`."""
    figures: Figures = {}
    ranks = trainer.ranks
    for prefix, weights in _weights(trainer):
        sums: Figures = {}
        counts: Figures = {}
        with weights, evaluating(trainer.model):
            for number, batch in enumerate(trainer.data.validation_batches()):
                seed_everything(trainer.plan.seed, "valid", number * ranks.world + ranks.rank)
                for name, term in trainer.validate(batch).items():
                    mean, weight = term if isinstance(term, tuple) else (term, batch_size(batch))
                    sums[name] = sums.get(name, 0.0) + float(mean) * weight
                    counts[name] = counts.get(name, 0.0) + weight
            means = trainer.conclude(ranks.weighted_means(sums, counts))
        figures |= {prefix + name: value for name, value in means.items()}
    return figures


def write_samples(trainer: "Trainer") -> list[Path]:
    """Write the first `num_samples` validation items to `samples/step-…/`, online beside averaged."""
    if not trainer.is_main or (batch := trainer.data.sample_batch()) is None:
        return []
    made = []
    for _, weights in _weights(trainer):
        with weights, evaluating(trainer.model):
            seed_everything(trainer.plan.seed, "sample")
            made.append(trainer.sample(batch))
    return artifacts.write_samples(trainer.run.samples / checkpoint_name(trainer.step), *made)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients, and every mode and generator as it was afterwards."""
    with eval_mode(model), kept_randomness(), torch.no_grad():
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode, and every module's own mode afterwards: a part may be kept in eval mode while the rest is trained."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _weights(trainer: "Trainer") -> Iterator[tuple[str, AbstractContextManager[None]]]:
    """The weights to look at, as blocks inside which the model has them."""
    yield "valid/", nullcontext()
    if trainer.ema is not None:
        yield "valid/ema/", trainer.ema.swapped()
