"""A voicebox of a size for tests: nobody has trained it, but all its parts fit, and all that it is told matters."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml
from small_codecs import small_codec
from torch import nn

from madrigal.voicebox.aligner import Aligner, AlignerConfig
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.symbols import SymbolSpec
from madrigal.voicebox.vocoder.model import Vocoder

RATE, HOP = 24000, 256
MELS = 20


def lively(model: nn.Module, scale: float = 0.1) -> Any:
    """Weights with which everything that goes in changes what comes out."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=scale)
    return model.eval()


def parts(**changes: dict[str, Any]) -> dict[str, Any]:
    """What `VoiceboxSpeech` is made of; `changes` by the name of a part."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": 16, "depth": 1, "n_mels": MELS}
    symbols = SymbolSpec(text={"kind": "characters"})
    aligner = lively(Aligner(AlignerConfig(symbols=symbols, **{**sizes, **changes.get("aligner", {})})))
    vocoder = Vocoder(discriminators=False, dim=16, depth=1, n_mels=MELS, **changes.get("vocoder", {}))
    vocoder.statistics.take_statistics(torch.full((MELS,), -5.0), torch.full((MELS,), 2.0))
    flow = {"dim_in": MELS, "num_cond_tokens": aligner.symbols.size, "dim": 16, "depth": 2, "heads": 2, "dim_head": 8}
    flow |= {"dim_cond_emb": 16, "num_register_tokens": 2, "cond_drop_prob": 0.2}
    voicebox = lively(VoiceBox(**{**flow, **changes.get("flow", {})}), 0.2)
    return {
        "voicebox": voicebox,
        "vocoder": vocoder.eval(),
        "durations": predictor(aligner, **changes.get("durations", {})),
        "aligner": aligner,
    }


def predictor(aligner: Aligner, kind: str = "regression") -> DurationPredictor:
    sizes: dict[str, Any] = {"dim": 16, "depth": 2, "heads": 2, "dim_head": 8, "dim_symbol_emb": 8}
    return lively(DurationPredictor(symbols=aligner.config.symbols, kind=kind, **sizes), 0.3)


def speech(**changes: dict[str, Any]) -> VoiceboxSpeech:
    made = parts(**changes)
    vocoder = made.pop("vocoder")
    return VoiceboxSpeech(made.pop("voicebox"), features=vocoder.features(), **made)


def speaking_run(folder: Path, **changes: dict[str, Any]) -> Path:
    """A run of voicebox, as far as speaking needs it."""
    made = parts(**changes)
    for name, part in {
        "aligner": "aligner",
        "vocoder": "vocoder",
        "durations": "durations",
        "flow": "voicebox",
    }.items():
        made[part].save_pretrained(folder / name)
    recipe = {"system": "voicebox", **{name: {} for name in ("aligner", "vocoder", "durations", "flow")}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "say": {"steps": 2}}))
    return folder


def codec_run(folder: Path, codec: Path) -> Path:
    """The same with the latents of a codec, whose folder the recipe names, in the place of log-mels."""
    made = small_codec(16, 2)
    made.save_pretrained(codec)
    grid = {"sample_rate": made.target_sample_hz, "hop": made.downsample_factor}
    speaking_run(folder, aligner=grid, flow={"dim_in": made.codebook_dim})
    shutil.rmtree(folder / "vocoder")
    flow = VoiceBox.from_pretrained(folder / "flow")
    flow.mean.fill_(0.1)
    flow.std.fill_(0.5)
    flow.save_pretrained(folder / "flow")
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "vocoder": str(codec)}))
    return folder


def hum(path: Path, seconds: float = 2.0, rate: int = RATE, channels: int = 1, pitch: float = 140.0) -> Path:
    """A file of somebody who hums in syllables."""
    time = np.arange(round(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * k * pitch * time) / k for k in range(1, 8))
    wave = 0.2 * tone * np.sin(4 * np.pi * time) ** 2 + 0.002 * np.random.default_rng(0).standard_normal(len(time))
    soundfile.write(path, np.stack([wave] * channels, 1), rate)
    return path
