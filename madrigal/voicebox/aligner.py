"""Which symbol is said in which frame, learned from recordings and their texts alone.

    wave -> log-mels and their slopes -+-> nearness to each symbol's own mean ---------+
                                       +-> convolutions -> which symbol does it sound? -+-> scores -> paths

Nobody says where a symbol is. In every step all paths through the text are weighed by the scores (and by a prior near
the diagonal, which fades): how probable it is that a frame belongs to a symbol. From these shares the means learn to be
the mean of their frames, and the classifier, which hears neighbours too, learns to name the symbol. Means alone find
their way from nothing, for a symbol that takes frames of all sorts explains none of them; the classifier is exact, and
has a say as soon as it has learned from them. (Soft attention trained by the sum over paths, as in Badlani et
al. 2021, gave nearly all frames to a few symbols in short trials; whether longer ones mend that was not tried.)
"""

import math
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.pretrained import Pretrained
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.mel_frames import MelFrames
from madrigal.voicebox.monotonic import IMPOSSIBLE, all_paths, best_path, log_prior
from madrigal.voicebox.symbols import Symbols, SymbolSpec

PACE = 10.0
"""The means are stored as a tenth: an optimizer's step, which suits a network's weights, then moves them enough."""
SILENT = math.log(1e-5)
"""A log-mel of nothing."""
MOST_SECONDS = 180.0
"""What is longer is not aligned with its text: the table of frames and symbols would be too large."""


class AlignerConfig(BaseModel):
    """Options of `Aligner`. A frame is `hop` samples, as in the features that the alignment is for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    symbols: SymbolSpec = Field(default_factory=SymbolSpec, description="how text becomes symbols")
    sample_rate: int = Field(24000, ge=1, description="of the recordings, in Hz")
    hop: int = Field(256, ge=1, description="samples of a frame")
    n_fft: int = Field(1024, ge=2, description="window of a spectrum, in samples")
    n_mels: int = Field(80, ge=1, description="mel bands")
    dim: int = Field(128, ge=8, description="width of the convolutions")
    depth: int = Field(2, ge=0, description="convolutions, one after another")
    kernel: int = Field(5, ge=1, description="width of a convolution in frames; odd")
    evidence: float = Field(
        10.0, gt=0, description="how many independent numbers a spectrum counts for: neighbouring bands say the same"
    )

    @model_validator(mode="after")
    def _can_be_centred(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError("kernel has to be odd, so that a convolution looks as far back as ahead")
        return self

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop


class Aligned(NamedTuple):
    """Durations int64 [batch, symbols], 0 behind a row's end, and confidence [batch] in 0 … 1.

    The confidence is the mean (geometric) share of its frame that the chosen symbol has among all symbols of the row.
    """

    durations: Tensor
    confidence: Tensor


class Aligner(nn.Module, Pretrained):
    """Log of the soft alignment, [batch, frames, symbols]: each frame's shares among the row's symbols."""

    Config: ClassVar[type[AlignerConfig]] = AlignerConfig
    config: AlignerConfig

    def __init__(self, config: AlignerConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or AlignerConfig()
        self.symbols = Symbols(config.symbols)
        self.spectra = MelFrames(config.sample_rate, hop=config.hop, n_fft=config.n_fft, n_mels=config.n_mels)
        numbers = 2 * config.n_mels
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("std", torch.ones(numbers))
        self.means = nn.Embedding(self.symbols.size, numbers)
        nn.init.zeros_(self.means.weight)
        self.heard = nn.Linear(numbers, config.dim)
        self.neighbours = Convolutions(config.dim, depth=config.depth, kernel=config.kernel)
        self.classes = nn.Linear(config.dim, self.symbols.size)

    @property
    def device(self) -> torch.device:
        return self.mean.device

    def frames(self, samples: Tensor) -> Tensor:
        """Whole frames of so many samples."""
        return samples // self.config.hop

    def mels(self, wave: Tensor) -> Tensor:
        """Waves [batch, samples] -> log-mels [batch, frames, n_mels]; what is no whole frame at the end is left out."""
        mels: Tensor = self.spectra(wave[:, : wave.shape[1] // self.config.hop * self.config.hop])
        return mels

    @torch.no_grad()
    def fit(self, mels: Tensor, frames: Tensor) -> None:
        """Take how loud each band is from log-mels [batch, frames, n_mels]; the quietest say how silence sounds."""
        sound = with_slopes(mels, frames)[mask_from_lengths(frames, mels.shape[1])]
        self.mean.copy_(sound.mean(0))
        self.std.copy_(sound.std(0).clamp(min=0.1))
        loudness = sound[:, : self.config.n_mels].mean(1)
        quiet = sound[loudness <= loudness.quantile(0.1)]
        # A silence that had to be found would be mistaken for the sound that most texts begin with.
        self.means.weight[self.symbols.silence] = ((quiet - self.mean) / self.std).mean(0) / PACE

    def forward(self, mels: Tensor, symbols: Tensor, *, frames: Tensor, lengths: Tensor) -> Tensor:
        """Log-mels [batch, frames, n_mels] of real `frames`, and symbols [batch, symbols] of real `lengths`."""
        heard = self._hear(mels, symbols, frames)
        said = mask_from_lengths(lengths, symbols.shape[1])[:, None]
        return F.log_softmax((heard.nearness + heard.named).masked_fill(~said, IMPOSSIBLE), dim=-1)

    def losses(
        self, mels: Tensor, symbols: Tensor, *, frames: Tensor, lengths: Tensor, prior: float = 0.0, trust: float = 1.0
    ) -> dict[str, Tensor]:
        """What is wrong with the means (`mean`) and with the classifier (`symbol`, in nats), of a frame on average.

        `prior` is how much the diagonal counts beside what is heard, and `trust` how much the classifier does.
        """
        heard = self._hear(mels, symbols, frames)
        scores = (heard.nearness + trust * heard.named).detach()
        if prior > 0:
            scores = scores + prior * log_prior(lengths, frames, (mels.shape[1], symbols.shape[1]))
        shares = all_paths(scores, lengths, frames).shares
        # One symbol may stand in a text several times; the classifier only says which it is.
        wanted = torch.zeros_like(heard.logits).scatter_add_(2, heard.which[:, None].expand_as(shares), shares)
        often = wanted.sum((0, 1))
        # Corrected for how often each is, the logits say how well a symbol fits and not how usual it is.
        logs = F.log_softmax(heard.logits + (often / often.sum() + 1e-5).log(), dim=-1)
        count = frames.sum()
        return {"mean": -(shares * heard.nearness).sum() / count, "symbol": -(wanted * logs).sum() / count}

    def _hear(self, mels: Tensor, symbols: Tensor, frames: Tensor) -> "Evidence":
        with torch.autocast(mels.device.type, enabled=False):
            sound = (with_slopes(mels.float(), frames) - self.mean) / self.std
            means = PACE * self.means(symbols.clamp(min=0))
            distance = sound.square().sum(-1)[..., None] - 2 * sound @ means.transpose(1, 2)
            distance = distance + means.square().sum(-1)[:, None]
            nearness = -0.5 * self.config.evidence * distance / sound.shape[-1]
        hidden = self.neighbours(self.heard(sound), mask_from_lengths(frames, mels.shape[1]))
        # Of a large vocabulary a batch has few symbols, and only these are asked about.
        there, which = torch.unique(symbols.clamp(min=0), return_inverse=True)
        logits = F.linear(hidden, self.classes.weight[there], self.classes.bias[there]).float()
        named = logits.gather(2, which[:, None].expand(-1, mels.shape[1], -1))
        return Evidence(nearness, named, logits, which)

    @torch.no_grad()
    def align(
        self, wave: Tensor, symbols: Tensor, *, samples: Tensor, lengths: Tensor, names: list[str] | None = None
    ) -> Aligned:
        """Waves [batch, samples] of real `samples` and symbols [batch, symbols] of real `lengths` -> `Aligned`."""
        frames = self.frames(samples)
        log_probs = self(self.mels(silent_behind(wave, samples)), symbols, frames=frames, lengths=lengths)
        durations = best_path(log_probs, lengths, frames, names)
        # A symbol that stands in the text several times has all their shares.
        same = (symbols[:, :, None] == symbols[:, None]).sum(-1)
        sure = _along(log_probs + same[:, None].log(), durations).clamp(max=0.0)
        return Aligned(durations, (sure.sum(1) / frames).exp())

    def align_text(self, wave: Tensor, text: str, name: str = "The recording") -> tuple[Tensor, Tensor, float]:
        """One wave [samples] and its text -> symbols, durations [symbols], and the alignment's confidence.

        `name` is what a sentence that refuses it begins with.
        """
        self.check_length(len(wave), name)
        symbols = torch.tensor([self.symbols.encode(text)], device=wave.device)
        samples, lengths = (torch.tensor([size], device=wave.device) for size in (len(wave), symbols.shape[1]))
        found = self.align(wave[None], symbols, samples=samples, lengths=lengths, names=[name])
        return symbols[0], found.durations[0], float(found.confidence[0])

    def check_length(self, samples: int, name: str = "The recording") -> None:
        """Refuse to align more than fits into the memory."""
        seconds = samples / self.config.sample_rate
        if seconds > MOST_SECONDS:
            raise UserError(
                f"{name} has {seconds:.0f} seconds, and words are found in {MOST_SECONDS:.0f} at most: cut it, and its "
                "text, into parts."
            )

    def fingerprint(self) -> str:
        """16 hex digits that change with anything that could change an alignment."""
        return fingerprint_of(self.config.model_dump(mode="json"), self.exported())


class Evidence(NamedTuple):
    """Of frames: nearness to the symbols' means, and what the classifier says of them, [batch, frames, symbols] both;
    its logits [batch, frames, classes] over the symbols that the batch has, and which of these each is."""

    nearness: Tensor
    named: Tensor
    logits: Tensor
    which: Tensor


class Convolutions(nn.Module):
    """[batch, time, dim] -> the same, seeing a few neighbours; a padded row equals the row alone."""

    def __init__(self, dim: int, *, depth: int, kernel: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(dim),
                    "conv": nn.Conv1d(dim, dim, kernel, padding=kernel // 2),
                    "out": nn.Linear(dim, dim),
                }
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        layer: Any
        for layer in self.layers:
            seen = (layer["norm"](x) * mask[..., None]).transpose(1, 2)
            x = x + layer["out"](F.gelu(layer["conv"](seen)).transpose(1, 2))
        found: Tensor = self.norm(x)
        return found


def with_slopes(mels: Tensor, frames: Tensor) -> Tensor:
    """Log-mels [batch, time, n_mels] of real `frames` -> [batch, time, 2 * n_mels], with the slope over five frames.

    Around a recording it is silent.
    """
    mels = mels.masked_fill(~mask_from_lengths(frames, mels.shape[1])[..., None], SILENT)
    around = F.pad(mels, (0, 0, 2, 2), value=SILENT)
    time = mels.shape[1]
    near, far = around[:, 3 : 3 + time] - around[:, 1 : 1 + time], around[:, 4:] - around[:, :time]
    return torch.cat((mels, near + 2 * far), dim=-1)


def silent_behind(wave: Tensor, samples: Tensor) -> Tensor:
    """The wave [batch, samples] with nothing to be heard behind a row's end."""
    return wave.masked_fill(~mask_from_lengths(samples, wave.shape[1]), 0.0)


def _along(log_probs: Tensor, durations: Tensor) -> Tensor:
    """log_probs [batch, frames, symbols] of each frame's own symbol, [batch, frames]; 0 behind a row's end."""
    ends = durations.cumsum(1)
    frames = torch.arange(log_probs.shape[1], device=ends.device).expand(len(ends), -1).contiguous()
    which = torch.searchsorted(ends, frames, right=True).clamp(max=ends.shape[1] - 1)
    return log_probs.gather(2, which[..., None])[..., 0] * (frames < ends[:, -1:])
