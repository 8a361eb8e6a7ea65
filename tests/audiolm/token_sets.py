"""Datasets of tokens, and the three trainers on them."""

from pathlib import Path
from typing import Any

import torch
from stages import CODES, SEMANTIC, coarse_stage, fine_stage, semantic_stage
from torch.utils.data import Dataset

from madrigal.audiolm.training import (
    CoarseTransformerTrainer,
    FineTransformerTrainer,
    SemanticTransformerTrainer,
    StageTrainer,
)

TRAINERS: dict[str, tuple[type[StageTrainer], Any]] = {
    "semantic": (SemanticTransformerTrainer, semantic_stage),
    "coarse": (CoarseTransformerTrainer, coarse_stage),
    "fine": (FineTransformerTrainer, fine_stage),
}


class Utterances(Dataset[dict[str, Any]]):
    """Rows of random tokens, 3 to 6 semantic ones with two frames of five codebooks to each."""

    def __init__(self, count: int = 24, **fields: Any) -> None:
        self.count, self.fields = count, fields

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        length = 3 + index % 4
        return {
            "semantic": torch.randint(0, SEMANTIC, (length,), generator=generator),
            "acoustic": torch.randint(0, CODES, (2 * length, 5), generator=generator),
            "reaches_end": index % 2 == 0,
            **self.fields,
        }


def make(name: str, folder: Path, *, stage: dict[str, Any] | None = None, **options: Any) -> StageTrainer:
    """A trainer of a small stage on random tokens."""
    kind, build = TRAINERS[name]
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
    }
    return kind(
        transformer=build(**(stage or {})), results_folder=folder, **{"dataset": Utterances(), **plan, **options}
    )
