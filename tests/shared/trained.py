"""What holds for every trainer: a resumed run ends as an unbroken one, and two ranks are one with twice the work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from launching import environment, on_two_ranks
from safetensors.torch import load_file, save_file

from madrigal.engine.checkpoint import checkpoint_name


def resumed_equals_unbroken(make: Callable[..., Any], folder: Path, *, stop: int, steps: int) -> tuple[Any, Any]:
    """Train with `make(run, resume=…)` to the end, and again with a break after `stop` steps; gives both trainers."""
    whole = make(folder / "whole", resume=False)
    whole.train()
    broken = make(folder / "broken", resume=False)
    for _ in range(stop):
        broken.train_step()
    broken.save(folder / "broken/checkpoints" / checkpoint_name(stop))
    resumed = make(folder / "broken", resume=True)
    assert resumed.step == stop
    resumed.train()
    for name in ("model", "ema", "optimizer"):
        left, right = (
            load_file(folder / run / "checkpoints" / checkpoint_name(steps) / f"{name}.safetensors")
            for run in ("whole", "broken")
        )
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left), name
    return whole, resumed


def leave_weights(trainer: Any, out: Path) -> None:
    """On each rank: its weights and their average, for `ranks_equal_one`."""
    state = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    state |= {f"ema/{name}": tensor.clone() for name, tensor in trainer.ema.state_dict().items()}
    save_file(state, out / f"rank-{trainer.ranks.rank}.safetensors")


def ranks_equal_one(script: Path, data: Path, folder: Path) -> None:
    """`script DATA OUT ACCUMULATION` trains and leaves its weights: alone with 2, and on two ranks with 1."""
    one, two = folder / "one", folder / "two"
    alone = {**os.environ, **environment(script)}
    subprocess.run([sys.executable, script, data, one, "2"], env=alone, check=True, capture_output=True)
    on_two_ranks(script, data, two, "1")
    ranks = [load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1)]
    for name, tensor in load_file(one / "rank-0.safetensors").items():
        assert torch.equal(ranks[0][name], ranks[1][name]), name
        torch.testing.assert_close(ranks[0][name], tensor, rtol=1e-4, atol=1e-5)
