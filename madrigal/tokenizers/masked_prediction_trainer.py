"""Trains a masked-prediction encoder: first its classes, then the encoder, at last the clusters of its output."""

from collections.abc import Iterator
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.engine.feed import Batch
from madrigal.engine.plan import Plan
from madrigal.engine.recordings import RecordingsTrainer
from madrigal.engine.trainer import Figures, LogFn, Terms
from madrigal.tokenizers.kmeans import KmeansPlan, fit, fit_centroids, remove_tokenizer
from madrigal.tokenizers.masked_prediction import MaskedPrediction


class MaskedPredictionPlan(Plan):
    """A plan with the two k-means fits around the training of the encoder."""

    heard_weight: float = Field(0.5, ge=0, description="of the loss of the tokens that are not hidden")
    target_minutes: float = Field(30.0, gt=0, description="audio to fit the classes on, before the first step")
    cluster_minutes: float = Field(60.0, gt=0, description="audio to fit the tokens on, after the last step")
    kmeans_iterations: int = Field(30, ge=1, description="rounds of both fits")


class MaskedPredictionTrainer(RecordingsTrainer):
    """Trains `tokenizer`; a finished run is a tokenizer for `load_tokenizer`.

    A batch holds `audio` [batch, 1, samples] and `lengths` [batch].
    """

    system: ClassVar[str] = "masked-prediction"
    model: MaskedPrediction
    plan: MaskedPredictionPlan

    def weight(self, turn: str, term: str) -> float:
        return {"masked": 1.0, "heard": self.plan.heard_weight}.get(term, 0.0)

    def loss(self, turn: str, batch: Batch) -> Terms:
        return self.model.masked_loss(batch["audio"][:, 0], batch["lengths"])

    def blocks(self) -> list[nn.Module]:
        return [*self.model.encoder.layers, *self.model.predictor.layers]

    def first_step(self, batches: list[Batch]) -> None:
        """Normalisation and classes, from many more recordings than a step has."""
        model = self.model
        if model.targets.is_fitted:
            return  # an encoder that was trained before keeps its classes
        waves = list(self._waves("classes", self.plan.target_minutes))
        model.norm.fit(torch.cat([model.spectra(_whole(wave, model.config.hop)[None])[0] for wave in waves]))
        figures = fit(model.targets, waves, self._kmeans_plan)
        ids = torch.cat([model.targets.tokenize(wave[None])[0][0] for wave in waves])
        counts = torch.bincount(ids, minlength=model.config.num_targets) + 1.0
        model.target_shares.copy_(counts / counts.sum())
        entropy = -(model.target_shares * model.target_shares.log()).sum()
        self.print(
            f"{model.config.num_targets} classes, entropy {float(entropy):.3f}, from {figures['frames']:.0f} frames"
        )

    def train(self, log_fn: LogFn | None = None) -> Self:
        """Train to the end of the plan and cluster; a run that is stopped before has no tokens yet."""
        if self.step < self.num_train_steps and self.is_main:
            remove_tokenizer(self.run.path)
        super().train(log_fn)
        if self.step >= self.num_train_steps and self.is_main and not (self.run.path / "model.safetensors").exists():
            self.cluster()
        self.ranks.wait()
        return self

    def cluster(self) -> Figures:
        """K-means over the output of the averaged encoder; leaves the finished tokenizer in the run's folder."""
        tokenizer = MaskedPrediction(self.model.config).to(self.device).eval()
        weights = self.model.exported()
        if self.ema is not None:
            weights |= {name: tensor for name, tensor in self.ema.state_dict().items() if name in weights}
        tokenizer.load_state_dict(weights, strict=False)
        waves = self._waves("clusters", self.plan.cluster_minutes)
        features = torch.cat([tokenizer.row_features(wave) for wave in waves])
        figures = fit_centroids(tokenizer, features, self._kmeans_plan)
        self.run.log(self.step, {f"tokens/{name}": value for name, value in figures.items()})
        self.print(f"{tokenizer.codebook_size} tokens  " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()))
        tokenizer.save_pretrained(self.run.path)
        self.data.close()
        return figures

    @property
    def _kmeans_plan(self) -> KmeansPlan:
        return KmeansPlan(seed=self.plan.seed, iterations=self.plan.kmeans_iterations)

    def _waves(self, stream: str, minutes: float) -> Iterator[Tensor]:
        """Waves [samples] of the training set, in an order that the seed alone decides, until they fill `minutes`."""
        left, step, seen = 60 * minutes * self.model.target_sample_hz, 0, 0
        feed, size = self.data.feed(stream), getattr(self.data.train, "__len__", lambda: 1 << 62)()
        while left > 0 and seen < size:
            for batch in feed.global_micro_batches(step):
                for wave, length in zip(batch["audio"][:, 0], batch["lengths"].tolist(), strict=True):
                    yield wave[:length]
                    left -= length
                    seen += 1
            step += 1


def _whole(wave: Tensor, hop: int) -> Tensor:
    return wave[: len(wave) // hop * hop]
