"""A semantic tokenizer: features of speech at a slow rate, and the nearest of some centroids for each.

What the kinds have in common is here. A kind says what its features are (`features`), of what size, and how many
samples a token covers; k-means (`tokenizers/kmeans.py`) gives it its centroids.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.audio import resample
from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.errors import UserError
from madrigal.layers.kmeans import nearness
from madrigal.tokenizers.fingerprint import fingerprint_of


class TokenizerConfig(BaseModel):
    """What every kind of semantic tokenizer has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    target_sample_hz: int = Field(16000, ge=1000, description="rate of the audio that it takes")
    codebook_size: int = Field(500, ge=2, description="clusters, that is, different tokens")


class SemanticTokenizer(nn.Module, Pretrained):
    """Waves [batch, samples] to ids [batch, time], time = ceil(samples / downsample_factor).

    Each row is computed alone, cut to its length: what stands beside it in a batch or behind its end cannot change
    its tokens, to the bit, whatever the model inside does with padding. Nothing here depends on the training mode.
    """

    training_only: ClassVar[tuple[str, ...]] = ()
    """Options that change how a tokenizer learns, and not what its tokens are."""
    config: TokenizerConfig
    seq_len_multiple_of: int | None = None
    """Where set, `forward` drops the samples that do not fill a multiple."""

    def __init__(self, config: TokenizerConfig, *, feature_dim: int) -> None:
        super().__init__()
        self.config = config
        self.feature_dim = feature_dim
        self.centroids: Tensor
        self.register_buffer("centroids", torch.zeros(config.codebook_size, feature_dim))

    # What a kind says of itself.

    @property
    def downsample_factor(self) -> int:
        """Samples of a token."""
        raise NotImplementedError

    @property
    def window(self) -> tuple[int, int] | None:
        """Tokens that are computed together, and tokens of context on each side of them; None: all at once."""
        return None

    def features(self, wave: Tensor) -> Tensor:
        """[batch, samples], a multiple of `downsample_factor` -> [batch, time, feature_dim]."""
        raise NotImplementedError

    def fit_statistics(self, waves: Iterable[Tensor]) -> None:
        """Before k-means: learn from waves [samples] what the features are normalised by, if anything."""

    # What the kinds share.

    @property
    def kind(self) -> str:
        return self.config.kind

    @property
    def target_sample_hz(self) -> int:
        return self.config.target_sample_hz

    @property
    def codebook_size(self) -> int:
        return self.config.codebook_size

    @property
    def frame_rate(self) -> float:
        """Tokens a second."""
        return self.target_sample_hz / self.downsample_factor

    @property
    def is_fitted(self) -> bool:
        """Whether it has its centroids."""
        return bool(self.centroids.any())

    @property
    def device(self) -> torch.device:
        return self.centroids.device

    @property
    def groups(self) -> int:
        return 1

    def fingerprint(self) -> str:
        """16 hex digits that change with anything that could change a token."""
        options = {k: v for k, v in self.config.model_dump(mode="json").items() if k not in self.training_only}
        return fingerprint_of(options, self.exported())

    @torch.no_grad()
    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Waves [batch, samples] or [batch, 1, samples] of real `lengths` [batch] -> ids [batch, time], lengths.

        Behind its own length a row of ids is -1.
        """
        if not self.is_fitted:
            raise UserError(
                f"This {self.kind} tokenizer has no centroids yet: fit them with `madrigal train kmeans/…`, "
                "or let its training finish."
            )
        rows = _mono(audio)
        sizes = [rows.shape[1]] * len(rows) if lengths is None else [int(length) for length in lengths]
        with self._frozen():
            ids = [self._ids(row[:size]) for row, size in zip(rows, sizes, strict=True)]
        counts = torch.tensor([len(row) for row in ids], dtype=torch.int64, device=rows.device)
        return pad_sequence(ids, batch_first=True, padding_value=PAD), counts

    @torch.no_grad()
    def row_features(self, wave: Tensor) -> Tensor:
        """A wave [samples] of any length -> [time, feature_dim]; a long one is computed in overlapping windows."""
        factor = self.downsample_factor
        wave = F.pad(wave, (0, -len(wave) % factor))
        total = len(wave) // factor
        if total == 0:
            return wave.new_zeros(0, self.feature_dim)
        if self.window is None or total <= sum(self.window):
            return self.features(wave[None])[0]
        size, context = self.window
        parts = []
        for start in range(0, total, size):
            first, last = max(0, start - context), min(total, start + size + context)
            found = self.features(wave[None, first * factor : last * factor])[0]
            parts.append(found[start - first : start - first + size])
        return torch.cat(parts)

    def forward(self, wav_input: Tensor, flatten: bool = True, input_sample_hz: int | None = None) -> Tensor:
        """Ids [batch, time] as older scripts ask for them; not `flatten`, [batch, time, 1]."""
        if input_sample_hz is not None:
            wav_input = resample(wav_input, input_sample_hz, self.target_sample_hz)
        if self.seq_len_multiple_of is not None:
            wav_input = wav_input[..., : wav_input.shape[-1] // self.seq_len_multiple_of * self.seq_len_multiple_of]
        ids, _ = self.tokenize(wav_input)
        return ids if flatten else ids.unsqueeze(-1)

    def _ids(self, wave: Tensor) -> Tensor:
        features = self.row_features(wave.to(self.device, torch.float32))
        return nearness(features[None], self.centroids[None])[0].argmax(-1).to(wave.device)

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Eval mode and full precision inside; outside every part is in the mode that it was in."""
        modes = {module: module.training for module in self.modules()}
        self.eval()
        try:
            with torch.autocast(self.device.type, enabled=False):
                yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def _mono(audio: Tensor) -> Tensor:
    """[samples], [batch, samples] or [batch, 1, samples] -> [batch, samples]."""
    rows = audio[None] if audio.ndim == 1 else audio
    rows = rows[:, 0] if rows.ndim == 3 and rows.shape[1] == 1 else rows
    if rows.ndim != 2:
        raise ValueError(f"A tokenizer takes waves of the shape [batch, samples]; these are {list(audio.shape)}.")
    return rows
