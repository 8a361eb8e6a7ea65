"""Fits the centroids of a tokenizer: waves -> features -> k-means."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from madrigal.data.dataset import SoundDataset
from madrigal.data.source import AudioSource
from madrigal.engine.machine import environment, prepare_process
from madrigal.engine.progress import tell
from madrigal.engine.randomness import kept_randomness, seed_everything, seed_for
from madrigal.engine.run import RunFolder
from madrigal.errors import UserError
from madrigal.layers.kmeans import kmeans, nearness
from madrigal.tokenizers.semantic import SemanticTokenizer

Figures = dict[str, float]


class KmeansPlan(BaseModel):
    """What a person chooses about the fit."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    minutes: float = Field(60.0, gt=0, description="audio to fit on, drawn from the data")
    iterations: int = Field(30, ge=1, description="rounds of Lloyd's algorithm")
    points_per_centre: int = Field(200, ge=1, description="more features than this for a cluster are left out")
    seed: int = Field(0, ge=0, description="which recordings and which starting points")


def fit(tokenizer: SemanticTokenizer, waves: Iterable[Tensor], plan: KmeansPlan) -> Figures:
    """Give `tokenizer` its centroids from waves [samples] at its rate; `waves` is gone through twice.

    Returns the mean squared distance per dimension over the features' own variance, and the perplexity of the ids.
    """
    with kept_randomness(), tokenizer._frozen():
        tokenizer.fit_statistics(waves)
        return fit_centroids(tokenizer, torch.cat([tokenizer.row_features(wave) for wave in waves]), plan)


@torch.no_grad()
def fit_centroids(tokenizer: SemanticTokenizer, features: Tensor, plan: KmeansPlan) -> Figures:
    """K-means over features [n, dim] into the tokenizer's centroids, by the plan's seed."""
    if len(features) < tokenizer.codebook_size:
        raise UserError(
            f"The data gives {len(features)} frames, fewer than the {tokenizer.codebook_size} clusters: "
            "give more audio, or lower codebook_size."
        )
    with kept_randomness():
        seed_everything(plan.seed, "k-means")
        centres, counts = kmeans(
            features,
            tokenizer.codebook_size,
            iterations=plan.iterations,
            points_per_centre=plan.points_per_centre,
            spread=True,
        )
    tokenizer.centroids.copy_(centres)
    shares = counts / counts.sum()
    some = features[:: max(1, len(features) // 20_000)]
    best = nearness(some[None], centres[None])[0].max(-1).values
    distance = (some.square().sum(-1) - 2 * best).clamp(min=0).mean()
    return {
        "distortion": float(distance / some.var(0).sum().clamp(min=1e-9)),
        "perplexity": float(torch.exp(-torch.special.xlogy(shares, shares).sum())),
        "frames": float(len(features)),
    }


class Recordings:
    """The first recordings of a seeded order that fill some minutes: waves [samples], decoded when they are reached."""

    def __init__(self, dataset: SoundDataset, *, minutes: float, seed: int) -> None:
        order = np.random.default_rng(seed_for(seed, "recordings")).permutation(len(dataset))
        seconds = np.cumsum([dataset.seconds(int(index)) for index in order])
        self.dataset, self.seed = dataset, seed
        self.indices = order[: int(np.searchsorted(seconds, 60 * minutes)) + 1]

    def __iter__(self) -> Iterator[Tensor]:
        for index in self.indices.tolist():
            # A crop is drawn the same way each time; a damaged file is replaced by another one of these.
            rng = np.random.default_rng(seed_for(self.seed, index))
            yield self.dataset.draw(index, rng, among=self.indices)["audio"][0]


class KmeansTrainer:
    """Fits `tokenizer` on the recordings of `source` and leaves it in the folder `run`, for `load_tokenizer`.

    It takes minutes, so there is nothing to resume: a run that was cut short starts over.
    """

    system = "kmeans"
    num_train_steps = 1

    def __init__(
        self,
        tokenizer: SemanticTokenizer,
        *,
        plan: KmeansPlan,
        source: AudioSource,
        results_folder: str | Path,
        recipe: dict[str, Any] | None = None,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        prepare_process()
        self.tokenizer, self.plan, self.source = tokenizer, plan, source
        self.model = tokenizer
        self.run = RunFolder(results_folder)
        self.run.open(resume=resume, overwrite=overwrite)
        self.is_done = resume and (self.run.path / "model.safetensors").exists()
        self.recipe = recipe or {}
        self.figures: Figures = {}
        self.resumed_as = self.run.path

    @property
    def step(self) -> int:
        """There is one, and it is taken or not."""
        return int((self.run.path / "model.safetensors").exists())

    def train(self) -> "KmeansTrainer":
        """Fit and save."""
        if self.is_done:
            tell(f"{self.run.path} is done.")
            return self
        remove_tokenizer(self.run.path)
        self.run.clear()
        self.run.write_recipe(self.recipe, environment())
        dataset, _ = self.source.datasets(
            self.tokenizer.target_sample_hz,
            multiple_of=1,
            channels=1,
            prepared_in=self.run.path / "data",
            anew=True,
            say=tell,
        )
        waves = Recordings(dataset, minutes=self.plan.minutes, seed=self.plan.seed)
        start = time.perf_counter()
        self.figures = fit(self.tokenizer, waves, self.plan)
        self.run.log(1, self.figures)
        self.tokenizer.save_pretrained(self.run.path)
        told = "  ".join(f"{name} {value:.4g}" for name, value in self.figures.items())
        tell(f"{self.tokenizer.codebook_size} centroids in {time.perf_counter() - start:.0f} s  {told}")
        return self


def remove_tokenizer(folder: Path) -> None:
    """Take a finished tokenizer out of its run folder, so that a new one that is not finished is not taken for it."""
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink(missing_ok=True)
