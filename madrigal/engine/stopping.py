"""Leaving a run in good order when the machine or the user asks."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


@contextmanager
def stopping_cleanly(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether SIGINT or SIGTERM came; a second signal stops at once."""
    asked = False

    def ask(_: int, __: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        with suppress(RuntimeError):  # the signal may have come while the main thread wrote to the same stream
            say("Stopping after this step (once more to stop at once)")

    before: dict[signal.Signals, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:
        pass  # not the main thread: the program that owns it handles signals
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
