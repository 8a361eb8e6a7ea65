"""Text to speech of a size for tests: nobody has trained it, but all its parts fit, and it comes to an end."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import yaml
from small_codecs import small_codec
from torch import nn

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.speech import TextToSpeech
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig

RATE, HOP, TOKEN = 16000, 320, 640
CLUSTERS, CODES, LEVELS = 12, 16, 4
SIZE: dict[str, Any] = {"dim": 32, "depth": 1, "heads": 2, "dim_head": 16}


def parts(text: Any = None, unique: bool = False, **changes: dict[str, Any]) -> dict[str, Any]:
    """What `TextToSpeech` is made of; `changes` by the name of a part."""
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=CLUSTERS))
    tokenizer.centroids.normal_()
    codec = small_codec(CODES, LEVELS, **changes.get("codec", {})).eval()
    speaker = TextToSemantic(
        **{
            "dim": 16,
            "source_depth": 1,
            "target_depth": 2,
            "heads": 2,
            "dim_head": 8,
            "num_semantic_token_ids": CLUSTERS,
            "text": {"kind": "characters"} if text is None else text,
            "unique_consecutive": unique,
            **changes.get("speaker", {}),
        }
    )
    torch.manual_seed(1)
    for name, parameter in speaker.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
    with torch.no_grad():
        speaker.tables["speech"].weight[-1] *= 2.5  # it mostly ends after some tokens
    acoustic = {"codebook_size": CODES, "num_coarse_quantizers": 2}
    clock = {} if unique else {"frames_per_semantic": 2.0}
    semantic = {"num_semantic_tokens": CLUSTERS, "unique_consecutive": unique}
    coarse = CoarseTransformer(**{**SIZE, **semantic, **acoustic, **clock, **changes.get("coarse", {})})
    fine = FineTransformer(**{**SIZE, **acoustic, "num_fine_quantizers": 2, **changes.get("fine", {})})
    # Heads that have learned nothing say almost the same of everything: let them speak up.
    for head in [*coarse.heads.parameters(), *fine.heads.parameters()]:
        head.data *= 100
    return {
        "text_to_semantic": speaker.eval(),
        "wav2vec": tokenizer,
        "codec": codec,
        "coarse_transformer": coarse.eval(),
        "fine_transformer": fine.eval(),
    }


def speech(**options: Any) -> TextToSpeech:
    return TextToSpeech(**parts(**options))


def delayed(**options: Any) -> TextToSpeech:
    """A coarse stage that draws all codebooks side by side, and no fine stage."""
    coarse = {"num_coarse_quantizers": LEVELS, "pattern": "delay"}
    return TextToSpeech(**{**parts(coarse=coarse, **options), "fine_transformer": None})


def voice(path: Path, seconds: float = 1.0, rate: int = RATE, channels: int = 1, pitch: float = 140.0) -> Path:
    """A file of somebody who hums."""
    time = np.arange(round(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * k * pitch * time) / k for k in range(1, 8))
    wave = 0.2 * tone * np.sin(4 * np.pi * time) ** 2 + 0.002 * np.random.default_rng(0).standard_normal(len(time))
    soundfile.write(path, np.stack([wave] * channels, 1), rate)
    return path


def speaking_run(folder: Path, **options: Any) -> Path:
    """A run of speartts, as far as speaking needs it."""
    made = parts(**options)
    fingerprints = {"tokenizer": made["wav2vec"].fingerprint(), "codec": made["codec"].fingerprint()}
    tools = {"tokenizer": str(folder / "tokenizer"), "codec": str(folder / "codec")}
    names = {
        "tokenizer": "wav2vec",
        "codec": "codec",
        "speak": "text_to_semantic",
        "coarse": "coarse_transformer",
        "fine": "fine_transformer",
    }
    for name, part in names.items():
        made[part].save_pretrained(folder / name)
    systems = {"speak": "text-to-semantic", "coarse": "coarse", "fine": "fine"}
    for name, system in systems.items():
        recipe = {"system": system, **tools, "fingerprints": fingerprints}
        (folder / name / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    whole = {"system": "speartts", "codec": tools["codec"], **{name: {} for name in systems}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(whole))
    return folder
