"""A small self-supervised encoder in the manner of HuBERT (Hsu et al. 2021), over log-mels, for one or two cores.

    log-mels -> normalised -> stacked to tokens -> [hidden spans] -> encoder -> predictor -> classes of hidden tokens
                                                                        `-> k-means -> ids

The classes are those of a `MelKmeans`. What can be told of a hidden sound from its neighbours is what was said, more
than who said it; so the encoder's output is clustered into tokens that cepstra alone do not give.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.layers.transformer import Transformer
from madrigal.tokenizers.mel_frames import MelFrames, UtteranceNorm
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig
from madrigal.tokenizers.semantic import SemanticTokenizer, TokenizerConfig
from madrigal.tokenizers.span_masks import span_mask, warp_bands


class MaskedPredictionConfig(TokenizerConfig):
    """Options of `MaskedPrediction`."""

    kind: Literal["masked-prediction"] = "masked-prediction"
    hop: int = Field(160, ge=1, description="samples between spectra")
    n_fft: int = Field(512, ge=2, description="window of a spectrum, in samples")
    n_mels: int = Field(40, ge=1, description="mel bands")
    frames_per_token: int = Field(4, ge=1, description="spectra that make a token")
    prior_seconds: float = Field(0.3, ge=0, description="how strongly the corpus' mean holds an utterance's own")

    dim: int = Field(256, ge=1, description="width of the transformer")
    depth: int = Field(4, ge=1, description="layers up to the one that is clustered")
    predictor_depth: int = Field(2, ge=1, description="layers behind it, which only training needs")
    heads: int = Field(4, ge=1, description="heads of a layer")
    dim_head: int = Field(64, ge=2, description="width of a head")
    ff_mult: float = Field(4.0, gt=0, description="hidden width of the feed-forward parts, in multiples of dim")
    dropout: float = Field(0.1, ge=0, lt=1, description="in attention and feed-forward, while training")
    centre: bool = Field(True, description="take the utterance's mean from the encoder's output before clustering")
    window_seconds: float = Field(20.0, gt=0, description="longer recordings are encoded in pieces of this length")

    num_targets: int = Field(100, ge=2, description="classes to predict: clusters of cepstra")
    target_context: int = Field(3, ge=0, description="spectra before and behind that a class hears too")
    mask_share: float = Field(0.45, gt=0, lt=1, description="share of the tokens that are hidden while training")
    mask_span: int = Field(5, ge=1, description="tokens of a hidden span")
    warp: float = Field(0.25, ge=0, lt=1, description="how much the resonances are moved while training")


class MaskedPrediction(SemanticTokenizer):
    """Features [batch, time, dim] of waves; in training, the loss of the hidden tokens' classes."""

    Config: ClassVar[type[MaskedPredictionConfig]] = MaskedPredictionConfig
    left_out: ClassVar[tuple[str, ...]] = ("predictor.", "head.", "targets.", "target_shares", "hidden")
    training_only: ClassVar[tuple[str, ...]] = (
        "predictor_depth",
        "dropout",
        "num_targets",
        "target_context",
        "mask_share",
        "mask_span",
        "warp",
    )
    config: MaskedPredictionConfig

    def __init__(self, config: MaskedPredictionConfig | None = None) -> None:
        config = config or MaskedPredictionConfig()
        super().__init__(config, feature_dim=config.dim)
        self.spectra = MelFrames(config.target_sample_hz, hop=config.hop, n_fft=config.n_fft, n_mels=config.n_mels)
        self.norm = UtteranceNorm(config.n_mels, prior=config.prior_seconds * config.target_sample_hz / config.hop)
        self.project = nn.Linear(config.n_mels * config.frames_per_token, config.dim)
        self.encoder = _transformer(config, config.depth)
        self.predictor = _transformer(config, config.predictor_depth)
        self.head = nn.Linear(config.dim, config.num_targets)
        self.hidden = nn.Parameter(0.02 * torch.randn(config.dim))
        self.targets = MelKmeans(
            MelKmeansConfig(
                target_sample_hz=config.target_sample_hz,
                hop=config.hop,
                n_fft=config.n_fft,
                frames_per_token=config.frames_per_token,
                context=config.target_context,
                prior_seconds=config.prior_seconds,
                codebook_size=config.num_targets,
            )
        )
        self.target_shares: Tensor
        self.register_buffer("target_shares", torch.full((config.num_targets,), 1 / config.num_targets))

    @property
    def downsample_factor(self) -> int:
        return self.config.hop * self.config.frames_per_token

    @property
    def window(self) -> tuple[int, int]:
        return max(1, round(self.config.window_seconds * self.frame_rate)), round(self.frame_rate)

    def features(self, wave: Tensor) -> Tensor:
        found = self.encoder(self.project(self._stacked(self.norm(self.spectra(wave)))))
        if self.config.centre:
            found = found - found.mean(1, keepdim=True)
        return found

    def masked_loss(self, wave: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        """Waves [batch, samples] of real `lengths` -> cross entropy of the hidden tokens, and what to compare it to.

        `unigram` is the cross entropy of somebody who knows only how frequent each class is.
        """
        config, factor = self.config, self.downsample_factor
        tokens = -(-wave.shape[-1] // factor)
        wave = F.pad(wave, (0, tokens * factor - wave.shape[-1]))
        real = mask_from_lengths(-(-lengths // factor), tokens)
        real_frames = real.repeat_interleave(config.frames_per_token, dim=1)
        with torch.no_grad(), torch.autocast(wave.device.type, enabled=False):
            classes = self.targets.classes(wave, real_frames)
            frames = self.spectra(wave)
            if self.training and config.warp:
                frames = warp_bands(frames, config.warp)
            frames = self.norm(frames, real_frames)
            hidden = span_mask(real, share=config.mask_share, span=config.mask_span)
        x = torch.where(hidden[..., None], self.hidden, self.project(self._stacked(frames)))
        everywhere = None if bool(real.all()) else real
        x = self.predictor(self.encoder(x, mask=everywhere), mask=everywhere)
        heard = real & ~hidden
        logits, wanted = self.head(x[hidden]).float(), classes[hidden]
        return {
            "masked": F.cross_entropy(logits, wanted),
            "heard": F.cross_entropy(self.head(x[heard]).float(), classes[heard]),
            "unigram": -self.target_shares[wanted].clamp(min=1e-6).log().mean(),
            "accuracy": (logits.argmax(-1) == wanted).float().mean(),
        }

    def _stacked(self, frames: Tensor) -> Tensor:
        """[batch, time * frames_per_token, n_mels] -> [batch, time, n_mels * frames_per_token]."""
        return frames.unflatten(1, (-1, self.config.frames_per_token)).flatten(2)


def _transformer(config: MaskedPredictionConfig, depth: int) -> Transformer:
    return Transformer(
        config.dim,
        depth,
        heads=config.heads,
        dim_head=config.dim_head,
        causal=False,
        ff_mult=config.ff_mult,
        attn_dropout=config.dropout,
        ff_dropout=config.dropout,
    )
