"""What AudioLM's stages cost on one core: tokens per CPU second in training and in generation, and how that grows.

The reference configuration: dimension 256, 6 layers, 4 heads; 500 semantic tokens, codebooks of 1024, 3 coarse and 5
fine quantizers; 8 rows of 512 tokens in training, one row of 510 or 512 tokens in generation.
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, precisions, run_part, tell
from torch import Tensor

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.training import (
    CoarseTransformerTrainer,
    FineTransformerTrainer,
    SemanticTransformerTrainer,
    StageTrainer,
)
from madrigal.engine.machine import matmul_rate

SIZE: dict[str, Any] = {"dim": 256, "depth": 6, "heads": 4}
ACOUSTIC: dict[str, Any] = {"codebook_size": 1024, "num_coarse_quantizers": 3}
TOKENS = 512


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random tokens, no two of which repeat: 512 of a stage to a row."""

    def __init__(self, semantic: int, frames: int) -> None:
        self.semantic, self.frames = semantic, frames

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        chance = torch.Generator().manual_seed(index)
        item: dict[str, Any] = {"reaches_end": True}
        if self.semantic:
            item["semantic"] = torch.randint(1, 500, (self.semantic,), generator=chance).cumsum(0) % 500
        if self.frames:
            item["acoustic"] = torch.randint(0, 1024, (self.frames, 8), generator=chance)
        return item


def trainer(stage: str, folder: Path, precision: str) -> StageTrainer:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "num_train_steps": 10**6,
        "batch_size": 8,
        "results_folder": folder / f"{stage}-{precision}",
        "mixed_precision": precision,
    }
    if stage == "semantic":
        model = SemanticTransformer(num_semantic_tokens=500, **SIZE)
        return SemanticTransformerTrainer(transformer=model, dataset=Rows(512, 0), **options)
    if stage == "coarse":
        coarse = CoarseTransformer(num_semantic_tokens=500, **ACOUSTIC, **SIZE)
        return CoarseTransformerTrainer(transformer=coarse, dataset=Rows(128, 128), **options)
    fine = FineTransformer(num_fine_quantizers=5, **ACOUSTIC, **SIZE)
    return FineTransformerTrainer(transformer=fine, dataset=Rows(0, 64), **options)


def one_row(size: int, classes: int, quantizers: int) -> Stream:
    codes: Tensor = torch.randint(0, classes, (1, size, quantizers))
    return Stream(codes, torch.tensor([size]))


def generation(run: StageTrainer, tokens: int) -> tuple[float, int]:
    """CPU seconds, and how many tokens they drew."""
    wrapper: Any = run.wrapper
    if run.system == "semantic":
        return cpu_seconds(lambda: wrapper.generate(max_length=tokens, may_end=False)), tokens
    if run.system == "coarse":
        given = one_row(64, 500, 1)
        return cpu_seconds(lambda: wrapper.generate(semantic=given, frames=tokens // 3, may_end=False)), tokens // 3 * 3
    coarse = one_row(tokens // 5, 1024, 3)
    return cpu_seconds(lambda: wrapper.generate(coarse=coarse)), tokens // 5 * 5


def stage(name: str, folder: Path, other: Records) -> None:
    """Training in the precisions that there are, then generation with the cache."""
    theirs = {record.get("kv_cache", "train"): record["tokens_per_cpu_s"] for kind in ("train", "generate")
              for record in other.get(f"{name}.{kind}", [])}  # fmt: skip
    for precision, bits in precisions():
        run = trainer(name, folder, precision)
        for _ in range(2):
            run.train_step()
        cost = statistics.median(cpu_seconds(run.train_step) for _ in range(8))
        speed, share = 8 * TOKENS / cost, run.step_flops / cost / matmul_rate("cpu", bits)
        tell(f"{name} train {precision}", speed, f"{100 * share:.0f} % of the matmul rate", theirs.get("train"))
    generation(run, 32)
    speeds = [tokens / cost for cost, tokens in (generation(run, TOKENS) for _ in range(3))]
    tell(f"{name} generate", statistics.median(speeds), "one row", theirs.get(True))


def length(_: str, folder: Path, __: Records) -> None:
    """Does a token cost the same after four thousand others?"""
    run = trainer("semantic", folder, "fp32")
    generation(run, 32)
    first = 0.0
    for tokens in (100, 500, 1000, 2000, 4000):
        cost, count = generation(run, tokens)
        first = first or cost / count
        print(f"length: {tokens} tokens: {1000 * cost / count:.2f} CPU ms a token, {cost / count / first:.2f} of 100's")


if __name__ == "__main__":
    run_part(__doc__, {**dict.fromkeys(("semantic", "coarse", "fine"), stage), "length": length})
