"""Memory of a process that works now and then."""

import os
import subprocess
import sys

import pytest

from madrigal.engine.machine import has_bf16, keep_few_kernels

GROW_AND_SHRINK = """
import psutil
from madrigal.engine.machine import give_memory_back, keep_memory

def held():
    return psutil.Process().memory_info().rss / 2**20

keep_memory()
rows = [bytearray(b"x" * 2**18) for _ in range(800)]
last = bytearray(2**18)  # lies behind them: the end of the heap stays where it is
del rows
before = held()
give_memory_back()
print(before, held())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's own")
def test_pages_that_hold_nothing_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", GROW_AND_SHRINK], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert before - after > 100


KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
MANY_LENGTHS = """
import psutil
from madrigal.engine.machine import keep_few_kernels
keep_few_kernels(8)
import torch

weight = torch.zeros(256, 256, dtype=torch.bfloat16)

def held():
    for length in lengths:
        torch.nn.functional.linear(torch.zeros(length, 256, dtype=torch.bfloat16), weight)
    return psutil.Process().memory_info().rss / 2**20

lengths = range(100, 120)
first = held()
lengths = range(120, 720)
print(first, held())
"""


@pytest.mark.skipif(not has_bf16("cpu"), reason="this processor does not compute in bfloat16")
def test_products_of_many_lengths_in_bfloat16_do_not_fill_memory() -> None:
    # A studio that was here before has left in the environment how many it keeps.
    environment = {name: value for name, value in os.environ.items() if name not in KEPT}
    command = [sys.executable, "-c", MANY_LENGTHS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    first, last = map(float, done.stdout.split())
    assert last - first < 10


def test_what_the_environment_says_of_kernels_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEPT:
        monkeypatch.setenv(name, "7")
    keep_few_kernels(3)
    assert [os.environ[name] for name in KEPT] == ["7", "7"]
    for name in KEPT:
        monkeypatch.delenv(name)
    keep_few_kernels(3)
    assert [os.environ[name] for name in KEPT] == ["3", "3"]
