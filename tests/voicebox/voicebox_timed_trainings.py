"""Trainings of aligners and duration predictors, small; as a script it trains them on the ranks of one launch."""

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset
from voicebox_tones import LETTERS, aligner, corpus

from madrigal.data.manifest import Manifest
from madrigal.data.source import Source
from madrigal.voicebox.aligner_training import AlignerTrainer
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.durations_training import DurationPredictorTrainer

PLAN: dict[str, Any] = {
    "num_train_steps": 6,
    "batch_size": 2,
    "lr": 1e-2,
    "ema_update_after_step": 1,
    "ema_update_every": 1,
    "save_results_every": 3,
    "save_model_every": 3,
    "num_samples": 1,
    "valid_frac": 0.2,
}
SIZES: dict[str, Any] = {
    "dim": 32, "depth": 2, "heads": 2, "dim_head": 16, "dim_symbol_emb": 16, "conv_pos_embed_kernel_size": 5,
    "num_register_tokens": 2, "sample_rate": 8000, "hop": 80,
}  # fmt: skip
NUM_SYMBOLS = len(LETTERS)


def align_trainer(
    folder: Path, *, seed: int = 0, data: Path | None = None, spoiled: bool = False, **options: Any
) -> AlignerTrainer:
    recordings = data or folder / "recordings"
    manifest = corpus(recordings) if data is None else Manifest.load(recordings)
    if spoiled:
        texts = [None, "a中b", "abcdef" * 40]
        changed = [entry.model_copy(update={"text": text}) for entry, text in zip(manifest, texts, strict=False)]
        Manifest(recordings, [*changed, *manifest.entries[3:]]).write(recordings / "manifest.jsonl")
    plan = {**PLAN, "prior_steps": 40, "means_steps": 15, "batch_size": 4, "save_results_every": 10, **options}
    return AlignerTrainer(aligner(seed), source=Source(path=recordings), results_folder=folder / "run", **plan)


class Rhythms(Dataset[dict[str, Tensor]]):
    """Rows whose durations follow from the symbols and from a pace of the row: letter n lasts (n + 2) * pace."""

    def __init__(self, size: int = 30) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        made = torch.Generator().manual_seed(index)
        count = int(torch.randint(6, 14, (), generator=made))
        symbols = torch.randint(0, NUM_SYMBOLS, (count,), generator=made)
        return {"symbols": symbols, "durations": (symbols + 2) * (1 + index % 2)}

    def tokens(self, index: int) -> int:
        return len(self[index]["symbols"])


def predictor(kind: str, seed: int = 0, **options: Any) -> DurationPredictor:
    torch.manual_seed(seed)
    return DurationPredictor(num_symbols=NUM_SYMBOLS, kind=kind, **{**SIZES, **options})


def duration_trainer(folder: Path, kind: str, *, seed: int = 0, model: Any = None, **options: Any) -> Any:
    plan = {"dataset": Rhythms(), "results_folder": folder, **PLAN, "lr": 3e-3, "scheduler": "constant"}
    plan |= {"sample_steps": 1, **options}
    return DurationPredictorTrainer(predictor(kind, seed) if model is None else model, **plan)


def whole_state(trainer: Any) -> dict[str, Tensor]:
    """Everything that goes on: weights, their average, and the optimizer's memory."""
    state = {f"model.{name}": t.clone() for name, t in trainer.model.state_dict().items()}
    state |= {f"ema.{name}": t.clone() for name, t in trainer.ema.state_dict().items()}
    for place, memory in trainer.turn_states[0].optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{place}.{name}": torch.as_tensor(t).clone() for name, t in memory.items()}
    return state


def train(out: Path, accumulation: int) -> None:
    data = out / "recordings"
    trainers: dict[str, Any] = {"aligner": align_trainer(out / "aligner", grad_accum_every=accumulation, data=data)}
    for kind in ("flow", "regression"):
        trainers[kind] = duration_trainer(out / kind / "run", kind, grad_accum_every=accumulation)
    for name, trainer in trainers.items():
        trainer.train()
        save_file(
            {k: v.contiguous() for k, v in trainer.model.state_dict().items()},
            out / f"{name}-{trainer.ranks.rank}.safetensors",
        )


if __name__ == "__main__":
    train(Path(sys.argv[1]), 1)
