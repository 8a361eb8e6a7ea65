"""Trains both trainers on the ranks of one launch and leaves each rank's state: test_flow_ranks.py runs it."""

import sys
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from voicebox_flows import HIDING, Halves, Rows, distiller, model, trainer, whole_state

RUNS = ("voicebox-flow", "voicebox-distill", "unfitted-features")


def train(out: Path, accumulation: int) -> None:
    plan: dict[str, Any] = {"grad_accum_every": accumulation, "wd": 0.1, "num_train_steps": 3}
    plan |= {"best_metric": "valid/ema/loss"}
    teacher = model(cond_drop_prob=0.2, ids_drop_prob=0.3)
    made = {
        "voicebox-flow": trainer(out / "voicebox-flow", options=HIDING, **plan).train(),
        "voicebox-distill": distiller(out / "voicebox-distill", teacher=teacher, **plan).train(),
        # The main rank alone fits them; the others have them from the model.
        "unfitted-features": trainer(
            out / "unfitted-features", tool=Halves(), dataset=Rows(kind="tuple"), **plan
        ).train(),
    }
    assert bool(made["unfitted-features"].wrapper.features.fitted)
    for name, one in made.items():
        save_file(whole_state(one), out / f"{name}-{one.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), 1)
