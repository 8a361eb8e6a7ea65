"""A codec for language models: log-mel frames, quantized level by level, and sound made of them again.

Most of what a codec of waves writes down is phase: the ear hardly needs it, and no model can foresee it. Codes of
log-mels leave it out. They are few, what they say of a voice is in the first ones, and a model learns them quickly; the
phase is made up where the sound is, by Griffin-Lim.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.recipe import build_config
from madrigal.layers.convnext import ConvNeXt
from madrigal.layers.quantizers import Quantized, build_quantizer
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.mel_codec_config import MelCodecConfig
from madrigal.tokenizers.mel_config import MelConfig
from madrigal.tokenizers.mel_features import MelFeatures
from madrigal.tokenizers.mel_streaming import MelStreamDecoder


class MelCodec(nn.Module, Pretrained):
    """Waves [batch, 1, samples] -> codes [batch, frames, quantizers] -> waves; frames are of `hop` samples."""

    Config: ClassVar[type[MelCodecConfig]] = MelCodecConfig
    config: MelCodecConfig
    rq_groups = 1
    channels = 1

    def __init__(self, config: MelCodecConfig | Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__()
        if not isinstance(config, MelCodecConfig) or options:
            given = config.model_dump() if isinstance(config, MelCodecConfig) else dict(config or {})
            config = build_config(MelCodecConfig, {**given, **options}, "MelCodec")
        self.config = config
        dim, hidden = config.dim, round(config.dim * config.ff_mult)
        blocks: dict[str, Any] = {"hidden": hidden, "kernel_size": config.kernel_size, "causal": False}
        self.features = MelFeatures(MelConfig(**config.mel_options()))
        self.embed = nn.Linear(config.n_mels, dim)
        self.encoder = ConvNeXt(dim, depth=config.encoder_depth, **blocks)
        self.narrow = nn.Linear(dim, config.latent_dim)
        self.quantizer = build_quantizer(
            "vq",
            dim=config.latent_dim,
            codebook_size=config.codebook_size,
            num_quantizers=config.num_quantizers,
            dropout_cutoff_index=config.quantize_dropout_cutoff_index,
            ema_decay=config.ema_decay,
        )
        self.widen = nn.Linear(config.latent_dim, dim)
        self.decoder = ConvNeXt(dim, depth=config.decoder_depth, **blocks)
        self.head = nn.Linear(dim, config.n_mels)

    # Numbers that others ask for.

    @property
    def target_sample_hz(self) -> int:
        return self.config.target_sample_hz

    @property
    def downsample_factor(self) -> int:
        return self.config.hop

    @property
    def seq_len_multiple_of(self) -> int:
        return self.config.hop

    @property
    def frame_rate(self) -> float:
        return self.config.target_sample_hz / self.config.hop

    @property
    def codebook_size(self) -> int:
        return self.config.codebook_size

    @property
    def num_quantizers(self) -> int:
        return self.config.num_quantizers

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def fingerprint(self) -> str:
        """16 hex digits of all that codes depend on."""
        state = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("quantizer.usage")}
        return fingerprint_of({"kind": self.config.kind, **self.config.mel_options()}, state)

    def frames(self, lengths: Tensor) -> Tensor:
        """Frames [batch] of so many samples [batch]; the last may be half silence."""
        return -(-lengths // self.config.hop)

    # The ways through it.

    def log_mels(self, audio: Tensor) -> Tensor:
        """[batch, 1, samples], a multiple of the hop -> normalised [batch, frames, n_mels]."""
        return self.features.normalise(self.features.raw(audio[:, 0]))

    def latents(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalised log-mels [batch, frames, n_mels] -> what is quantized, [batch, frames, latent_dim].

        With a `mask` [batch, frames], True = real, a padded row has the latents that it has alone.
        """
        latents: Tensor = self.narrow(self.encoder(self.embed(frames), mask=mask))
        return latents

    def frames_of(self, latents: Tensor, mask: Tensor | None = None) -> Tensor:
        """[batch, frames, latent_dim] -> normalised log-mels [batch, frames, n_mels]."""
        frames: Tensor = self.head(self.decoder(self.widen(latents), mask=mask))
        return frames.float()

    def autoencode(
        self, frames: Tensor, *, collect: bool = False, mask: Tensor | None = None
    ) -> tuple[Tensor, Quantized]:
        """Normalised log-mels [batch, frames, n_mels], and what comes back of them through the codes."""
        quantized: Quantized = self.quantizer(self.latents(frames, mask), collect=collect, mask=mask)
        return self.frames_of(quantized.embedding, mask), quantized

    @torch.no_grad()
    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Waves [batch, 1, samples] or [batch, samples] -> codes, PAD behind a row's own frames."""
        if audio.ndim == 2:
            audio = audio[:, None]
        sizes = [audio.shape[-1]] * len(audio) if lengths is None else [int(length) for length in lengths]
        if len(set(sizes)) > 1:
            # A frame hears what is around it: each row is coded as it would be alone.
            rows = [self.tokenize(row[None, :, :size])[0] for row, size in zip(audio, sizes, strict=True)]
            return pad_sequence(rows, batch_first=True, padding_value=PAD)
        audio = audio[..., : sizes[0]].to(self.device)
        audio = F.pad(audio, (0, -audio.shape[-1] % self.config.hop))
        codes: Tensor = self.quantizer(self.latents(self.log_mels(audio))).codes
        return codes

    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] -> the latents that they stand for, [batch, frames, latent_dim]."""
        latents: Tensor = self.quantizer.decode(indices.to(self.device))
        return latents

    @torch.no_grad()
    def decode_from_codebook_indices(self, quantized_indices: Tensor, start: int = 0) -> Tensor:
        """Codes [batch, frames, the first quantizers] -> waves [batch, 1, frames * hop].

        Of a piece of a recording `start` is the number of its first frame: but for `reach` frames at its ends it
        sounds as in the whole.
        """
        frames = self.features.denormalise(self.frames_of(self.get_emb_from_indices(quantized_indices)))
        wave: Tensor = self.features.griffin_lim(frames, start)
        return wave[:, None]

    @property
    def reach(self) -> int:
        """Frames on each side that a frame's sound depends on."""
        return self.features.griffin_lim.reach + self.config.decoder_depth * (self.config.kernel_size // 2)

    def stream_decoder(self) -> MelStreamDecoder:
        """For codes that come piece by piece."""
        return MelStreamDecoder(self)
