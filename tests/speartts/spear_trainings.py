"""A small model, random pairs for it, and the three trainers on these."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pairs import Ids
from madrigal.speartts.trainer import SpearTrainer
from madrigal.speartts.training import SemanticToTextTrainer, SpeechSpeechPretrainer, TextToSemanticTrainer

SEMANTIC = 20
SIZE: dict[str, Any] = {"dim": 32, "source_depth": 2, "target_depth": 2, "heads": 2, "dim_head": 16}
TRAINERS: dict[str, type[SpearTrainer]] = {
    "speech-speech": SpeechSpeechPretrainer,
    "semantic-to-text": SemanticToTextTrainer,
    "text-to-semantic": TextToSemanticTrainer,
}
WRITTEN = {"speech-speech": "speech", "semantic-to-text": "text", "text-to-semantic": "speech"}
WORDS = ("so", "far", "away", "hills", "ring")


def new_model(seed: int = 0, **options: Any) -> TextToSemantic:
    """A model as it begins, in eval mode."""
    torch.manual_seed(seed)
    sizes = {**SIZE, "num_semantic_token_ids": SEMANTIC}
    if "num_text_token_ids" not in options:
        sizes["text"] = {"kind": "characters"}
    return TextToSemantic(**{**sizes, **options}).eval()


def random_ids(size: int, lengths: tuple[int, ...], seed: int = 1, extra: int = 0) -> Ids:
    """Rows of these lengths, with `extra` columns of padding."""
    ids = torch.randint(0, size, (len(lengths), max(lengths) + extra), generator=torch.Generator().manual_seed(seed))
    wanted = torch.tensor(lengths)
    return Ids(ids.masked_fill(torch.arange(ids.shape[1]) >= wanted[:, None], -1), wanted)


class Pairs(Dataset[Any]):
    """Random semantic ids, 4 to 9 of them, no two alike beside each other, and a few words."""

    def __init__(self, count: int = 24, *, as_tuple: bool = False) -> None:
        self.count, self.as_tuple = count, as_tuple

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(range(self.count)[index])
        steps = torch.randint(1, SEMANTIC, (4 + index % 6,), generator=generator)
        semantic, text = steps.cumsum(0) % SEMANTIC, " ".join(WORDS[: 1 + index % 3])
        return (semantic, text) if self.as_tuple else {"semantic": semantic, "text": text}


def make(name: str, folder: Path, *, model: Any = None, **options: Any) -> SpearTrainer:
    """A trainer of a small model (or of the model with these options) on random pairs."""
    plan = {
        "num_train_steps": 6,
        "batch_size": 3,
        "lr": 1e-2,
        "warmup_steps": 2,
        "ema_update_after_step": 1,
        "ema_update_every": 1,
        "save_results_every": 3,
        "save_model_every": 2,
        "valid_frac": 0.2,
        "num_samples": 2,
    }
    made = model if isinstance(model, TextToSemantic) else new_model(**(model or {}))
    return TRAINERS[name](made, results_folder=folder, **{"dataset": Pairs(), **plan, **options})


def whole_state(trainer: Any) -> dict[str, torch.Tensor]:
    """Weights, their average and the optimizer's moments."""
    state = {f"model.{k}": v.clone() for k, v in trainer.model.state_dict().items()}
    state |= {f"ema.{k}": v.clone() for k, v in trainer.ema.state_dict().items()}
    moments = trainer.turn_states[0].optimizer.state_dict()["state"]
    return state | {
        f"{i}.{n}": t.clone() for i, s in moments.items() for n, t in s.items() if isinstance(t, torch.Tensor)
    }
