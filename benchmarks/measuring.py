"""What the benchmarks share: CPU seconds of a call, and another library's figures taken in the same run."""

import argparse
import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from madrigal.engine.machine import has_bf16, keep_memory, matmul_rate, prepare_process

Records = dict[str, list[dict[str, Any]]]
Part = Callable[[str, Path, Records], None]
"""A benchmark: its name, a folder to work in, and another library's records."""


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Of this process, all its threads together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def precisions() -> list[tuple[str, int]]:
    """What this machine computes in, and its bits: bfloat16 that it only pretends to have would measure nothing."""
    return [("fp32", 32), ("bf16", 16)] if has_bf16("cpu") else [("fp32", 32)]


def ways_to_train() -> list[tuple[str, str, int, bool]]:
    """A name, a precision, its bits, whether to compile: the precisions as they are, and the lowest compiled too."""
    plain = [(precision, precision, bits, False) for precision, bits in precisions()]
    _, precision, bits, _ = plain[-1]
    return [*plain, (f"{precision} compiled", precision, bits, True)]


def share_told(run: Any, cost: float, bits: int) -> str:
    """How much of the machine's rate a trainer's step of `cost` seconds was; of what is compiled nobody knows."""
    if not run.step_flops:
        return "compiled"
    return f"{100 * run.step_flops / cost / matmul_rate('cpu', bits):.0f} % of the matmul rate"


def beside(command: str | None) -> Records:
    """The other library's records by name, measured now."""
    if command is None:
        return {}
    output = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True).stdout
    found: Records = {}
    for line in output.splitlines():
        if line.startswith("REC "):
            record = json.loads(line.removeprefix("REC "))
            found.setdefault(record["name"], []).append(record)
    return found


def tell(what: str, speed: float, more: str, other: float | None, unit: str = "tokens") -> None:
    """One line: tokens, or what else is counted, per CPU second, and how many times another library's they are."""
    ratio = "" if other is None else f", beside {_number(other)}: {speed / other:.2f} times"
    print(f"{what}: {_number(speed)} {unit} per CPU s, {more}{ratio}", flush=True)


def _number(value: float) -> str:
    """With digits enough for what is few."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def run_part(description: str | None, parts: Mapping[str, Part]) -> None:
    """The part that the command line names, on one thread."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("part", choices=list(parts))
    parser.add_argument("--beside", help="a command that measures another library and prints REC lines")
    arguments = parser.parse_args()
    keep_memory()
    prepare_process()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        parts[arguments.part](arguments.part, Path(name), beside(arguments.beside))
