"""Memory of a process that works now and then."""

import os
import subprocess
import sys

import pytest

from madrigal.engine.machine import keep_few_kernels

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


def test_what_the_environment_says_of_kernels_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    monkeypatch.setenv(name, "7")
    keep_few_kernels(3)
    assert os.environ[name] == "7"
    monkeypatch.delenv(name)
    keep_few_kernels(3)
    assert os.environ[name] == "3"
