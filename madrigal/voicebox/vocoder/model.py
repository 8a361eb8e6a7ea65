"""The vocoder: log-mels to sound through an inverse Fourier transform, after Vocos (Siuzdak 2023).

Two things differ from there. A few rounds of Griffin-Lim come first, and the network mends what they leave: a network
that sees only some frames is long in learning phases that agree over many, while it starts here with speech that can be
understood. And all of it is made of frames, so a core makes many seconds of sound a second.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.engine.pretrained import SHIPPED, Pretrained, locate
from madrigal.engine.recipe import build_config
from madrigal.layers.convnext import ConvNeXt
from madrigal.layers.griffin_lim import GriffinLim
from madrigal.layers.hop_stft import hop_stft, inverse_hop_stft, margins
from madrigal.soundstream.discriminators import build_discriminators
from madrigal.soundstream.losses import ReconstructionLosses
from madrigal.soundstream.spectral import spectral_features
from madrigal.tokenizers.mel_config import MelConfig
from madrigal.tokenizers.mel_features import MelFeatures
from madrigal.voicebox.vocoder.config import VocoderConfig


class Vocoder(nn.Module, Pretrained):
    """Log-mels [batch, frames, n_mels] -> waves [batch, frames * hop].

    It holds the statistics of its log-mels, so that its folder alone gives features there and back (`features`).
    `discriminators=False` builds none, for a vocoder that is only used.
    """

    Config: ClassVar[type[VocoderConfig]] = VocoderConfig
    left_out: ClassVar[tuple[str, ...]] = ("discriminators.",)
    config: VocoderConfig

    def __init__(
        self,
        config: VocoderConfig | Mapping[str, Any] | None = None,
        *,
        discriminators: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if not isinstance(config, VocoderConfig) or options:
            given = config.model_dump() if isinstance(config, VocoderConfig) else dict(config or {})
            config = build_config(VocoderConfig, {**given, **options}, "Vocoder")
        self.config = config
        dim, bins = config.dim, config.n_fft // 2 + 1
        self.statistics = MelFeatures(config)
        self.rough = GriffinLim(
            config.target_sample_hz,
            hop=config.hop,
            n_fft=config.n_fft,
            n_mels=config.n_mels,
            iterations=config.iterations,
        )
        self.embed = nn.Linear(config.n_mels + 3 * bins, dim)
        self.backbone = ConvNeXt(
            dim,
            depth=config.depth,
            hidden=round(dim * config.ff_mult),
            kernel_size=config.kernel_size,
            causal=False,
        )
        self.head = nn.Linear(dim, 3 * bins)
        with torch.no_grad():  # at first it leaves the rough spectrum nearly alone
            self.head.weight.mul_(0.02)
            self.head.bias.zero_()
        self.discriminators = build_discriminators(config) if discriminators else nn.ModuleDict()
        self.reconstruction_losses = ReconstructionLosses(config, config.target_sample_hz)

    # Numbers that others ask for.

    @property
    def target_sample_hz(self) -> int:
        return self.config.target_sample_hz

    @property
    def downsample_factor(self) -> int:
        return self.config.hop

    @property
    def channels(self) -> int:
        return 1

    @property
    def context(self) -> int:
        """Frames on each side that the sound of a frame depends on."""
        config = self.config
        overlap = -(-max(margins(config.n_fft, config.hop)) // config.hop)
        return self.rough.reach + config.depth * (config.kernel_size // 2) + overlap

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, worth compiling or recomputing."""
        return list(self.backbone.blocks)

    # The ways through it.

    def features(self) -> MelFeatures:
        """Log-mels by the statistics that this vocoder was trained with, which sound through a frozen copy of it."""
        features = MelFeatures(MelConfig(**self.config.mel_options()), vocoder=copy.deepcopy(self))
        features.take_statistics(self.statistics.mean, self.statistics.std)
        return features.to(self.head.weight.device)

    def forward(self, log_mels: Tensor, start: int = 0) -> Tensor:
        """`start` is the number of the first frame, where these are a piece of more."""
        config = self.config
        if not log_mels.shape[1]:
            return log_mels.new_zeros(len(log_mels), 0)
        return inverse_hop_stft(self.spectrum(log_mels, start), config.n_fft, config.hop)

    def spectrum(self, log_mels: Tensor, start: int = 0) -> Tensor:
        """Complex [batch, frames, bins]: the rough one, with every bin's level and phase put right.

        A phase is turned by the direction of two numbers and not by an angle, which has a seam.
        """
        with torch.no_grad(), torch.autocast(log_mels.device.type, enabled=False):
            heard = hop_stft(self.rough(log_mels, start), self.config.n_fft, self.config.hop)
            seen = torch.cat((self.statistics.normalise(log_mels), spectral_features(heard[:, None])), dim=-1)
        louder, real, imaginary = self.head(self.backbone(self.embed(seen))).float().chunk(3, dim=-1)
        return heard * torch.complex(1 + real, imaginary) * louder.clamp(max=5.0).exp()

    @torch.no_grad()
    def in_chunks(self, log_mels: Tensor, *, chunk: int = 100) -> Iterator[Tensor]:
        """The same sound in pieces of `chunk` frames, each made with as much around it as it depends on."""
        frames, hop = log_mels.shape[1], self.config.hop
        for start in range(0, frames, chunk):
            first, end = max(0, start - self.context), min(frames, start + chunk)
            wave = self(log_mels[:, first : end + self.context], first)
            yield wave[:, (start - first) * hop : (end - first) * hop]

    # Names that scripts of older libraries call.

    decode = forward


def is_vocoder(name: str | Path) -> bool:
    """Whether `name` is a run, a folder or a shipped name of a vocoder; nobody is asked for it on the network."""
    is_here = any(
        (place / part).exists()
        for place in (Path(name), SHIPPED / str(name))
        for part in ("config.json", "checkpoints")
    )
    if not is_here:
        return False
    config = locate(name) / "config.json"
    try:
        return bool(json.loads(config.read_text()).get("kind") == "vocoder")
    except (OSError, ValueError, AttributeError):
        return False
