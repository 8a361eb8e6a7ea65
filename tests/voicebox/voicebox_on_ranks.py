"""Trains both trainers on the ranks of one launch and leaves each rank's state: test_flow_ranks.py runs it."""

import sys
from pathlib import Path

from safetensors.torch import save_file
from voicebox_flows import HIDING, distiller, model, trainer, whole_state


def train(out: Path, accumulation: int) -> None:
    plan = {"grad_accum_every": accumulation, "wd": 0.1, "best_metric": "valid/ema/loss", "num_train_steps": 3}
    flow = trainer(out / "voicebox-flow", options=HIDING, **plan).train()
    teacher = model(cond_drop_prob=0.2, ids_drop_prob=0.3)
    student = distiller(out / "voicebox-distill", teacher=teacher, **plan).train()
    for made in (flow, student):
        save_file(whole_state(made), out / f"{made.system}-{made.ranks.rank}.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]), 1)
