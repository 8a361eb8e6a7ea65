"""What does it take: processor time, which other programs lengthen far less than the clock's; calls of a network."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

FIRST_WORDS = "One, two, three."
"""Said before any time is taken: what is done once, at the first sentence, is no part of the speed."""


class Stopwatch:
    """`with Stopwatch() as watch: …`; then `watch.seconds` is the time of all cores, of programs it called as well.

    Processors other than the CPU keep no such account: `clock=True` takes the time on the wall.
    """

    def __init__(self, *, clock: bool = False) -> None:
        self._now = time.perf_counter if clock else _processor_seconds
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._started = self._now()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = self._now() - self._started


@contextmanager
def one_thread() -> Iterator[None]:
    """So that a processor second is a second of one core."""
    import torch  # here, so that metrics that need no network start without it

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def counted(module: Any) -> Iterator[list[None]]:
    """A list that grows by one at every call of a network's module."""
    calls: list[None] = []
    hook = module.register_forward_hook(lambda *_: calls.append(None))
    try:
        yield calls
    finally:
        hook.remove()


def _processor_seconds() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system
