"""Whisper's encoder (Radford et al. 2022) and its spectra, from a transformers folder or an OpenAI file.

wave of one window -> log-mels [batch, mels, 2 * positions] -> two convolutions -> layers -> [batch, positions, dim]
"""

import re
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.layers.spectra import hz_to_mel, mel_to_hz, stft

RATE, HOP, N_FFT = 16000, 160, 400

_OPENAI_NAMES = {
    r"^blocks\.": "layers.",
    r"\.attn\.query\.": ".q_proj.",
    r"\.attn\.key\.": ".k_proj.",
    r"\.attn\.value\.": ".v_proj.",
    r"\.attn\.out\.": ".out_proj.",
    r"\.attn_ln\.": ".attn_norm.",
    r"\.mlp\.0\.": ".fc1.",
    r"\.mlp\.2\.": ".fc2.",
    r"\.mlp_ln\.": ".ff_norm.",
    r"^positional_embedding$": "positions",
}
_TRANSFORMERS_NAMES = {
    r"\.self_attn\.": ".",
    r"\.self_attn_layer_norm\.": ".attn_norm.",
    r"\.final_layer_norm\.": ".ff_norm.",
    r"^embed_positions\.weight$": "positions",
}


class WhisperEncoder(nn.Module):
    """The first `depth` layers: log-mels [batch, n_mels, 2 * time] -> [batch, time, dim]."""

    def __init__(self, n_mels: int, dim: int, heads: int, depth: int, num_positions: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, dim, 3, padding=1)
        self.conv2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(num_positions, dim))
        self.layers = nn.ModuleList(_Layer(dim, heads) for _ in range(depth))
        self.filters: Tensor
        self.register_buffer("filters", _mel_filters(n_mels), persistent=False)

    def log_mels(self, wave: Tensor) -> Tensor:
        """[batch, samples] -> [batch, n_mels, samples / 160], within eight powers of ten of the loudest."""
        power = stft(wave, N_FFT, hop=HOP)[..., :-1].abs().square()
        logs = (self.filters @ power).clamp(min=1e-10).log10()
        loudest = logs.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(logs, loudest - 8.0) + 4.0) / 4.0

    def forward(self, mels: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(mels)))).transpose(1, 2)
        x = x + self.positions[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return x


class _Layer(nn.Module):
    """Self attention and feed-forward, each behind its norm, [batch, time, dim] -> the same shape."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attn_norm, self.ff_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q_proj, self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attn_norm(x)
        q, k, v = (
            p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        x = x + self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.ff_norm(x))))


def load_whisper(checkpoint: str | Path, layer: int) -> WhisperEncoder:
    """The encoder up to `layer`, counted from 1."""
    path = Path(checkpoint)
    weights, heads = _from_folder(path) if path.is_dir() else _from_file(path)
    depth = 1 + max((int(name.split(".")[1]) for name in weights if name.startswith("layers.")), default=-1)
    if "conv1.weight" not in weights or depth < layer:
        raise UserError(f"{path} has an encoder of {depth} layers; one of at least {layer} is needed.")
    dim, n_mels, _ = weights["conv1.weight"].shape
    encoder = WhisperEncoder(n_mels, dim, heads, layer, len(weights["positions"]))
    own = encoder.state_dict()
    try:
        encoder.load_state_dict({name: weights[name].float() for name in own})
    except (KeyError, RuntimeError) as error:
        raise UserError(f"{path} is no encoder of Whisper: {error}.") from error
    return encoder.eval().requires_grad_(False)


def whisper_dim(checkpoint: str | Path) -> int | None:
    """Width of the encoder where a folder's config.json tells it without reading weights."""
    from madrigal.tokenizers.foreign import foreign_config

    return (foreign_config(checkpoint) or {}).get("d_model")


def _from_folder(path: Path) -> tuple[dict[str, Tensor], int]:
    from madrigal.tokenizers.foreign import foreign_config

    config = foreign_config(path) or {}
    files = sorted(path.glob("model*.safetensors"))
    if config.get("model_type") != "whisper" or not files:
        raise UserError(
            f"{path} is no Whisper checkpoint of transformers: config.json and model.safetensors are needed."
        )
    found: dict[str, Tensor] = {}
    try:
        for file in files:
            found |= load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"The weights in {path} cannot be read ({error}).") from error
    return _encoder_part(found, _TRANSFORMERS_NAMES), int(config["encoder_attention_heads"])


def _from_file(path: Path) -> tuple[dict[str, Tensor], int]:
    """An OpenAI checkpoint: a dict of sizes and one of weights. Nothing but tensors and numbers is unpickled."""
    try:
        whole: Any = torch.load(path, map_location="cpu", weights_only=True)
        return _encoder_part(whole["model_state_dict"], _OPENAI_NAMES), int(whole["dims"]["n_audio_head"])
    except Exception as error:  # a damaged file raises whatever the reader stumbled over
        raise UserError(f"{path} is neither a Whisper folder of transformers nor an OpenAI .pt file.") from error


def _encoder_part(weights: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in weights.items():
        start, _, own = name.rpartition("encoder.")
        if start in ("", "model.") and own != name:
            for old, new in names.items():
                own = re.sub(old, new, own)
            found[own] = tensor
    return found


def _mel_filters(n_mels: int) -> Tensor:
    """[n_mels, bins]: triangles as narrow as Slaney's scale makes them, which Whisper was trained with."""
    bins = torch.linspace(0, RATE / 2, N_FFT // 2 + 1, dtype=torch.float64)
    first, last = hz_to_mel(torch.tensor([0.0, RATE / 2], dtype=torch.float64)).tolist()
    corners = mel_to_hz(torch.linspace(first, last, n_mels + 2, dtype=torch.float64))
    low, centre, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    triangles = torch.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clamp(min=0)
    return (triangles * 2.0 / (high - low)).float()
