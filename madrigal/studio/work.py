"""Heavy work, one piece at a time: threads that take jobs from a bounded line, and jobs that can be given up.

A job is a function that yields what it makes. Whoever waits for it may leave, or its time may be up: then it ends at
the next thing that it yields, or at the next call of a network (`interruptible`).
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

from torch import nn

from madrigal.engine.machine import give_memory_back
from madrigal.studio.errors import ApiError

log = logging.getLogger("madrigal.studio")
Item = TypeVar("Item")
_END = object()
_here = threading.local()


class Cancelled(Exception):
    """Nobody waits for this any more, or it has taken too long."""


class Job(Generic[Item]):
    """Something that is made in a worker's thread, and waited for in the event loop."""

    def __init__(self, make: Callable[[], Iterable[Item]], deadline: float) -> None:
        self._make, self.deadline = make, deadline
        self._loop = asyncio.get_running_loop()
        # Without a bound: a client that reads slowly must not hold up the worker. What a request may ask for bounds it.
        self._made: asyncio.Queue[Any] = asyncio.Queue()
        self._given_up = threading.Event()

    def give_up(self) -> None:
        self._given_up.set()

    def check(self) -> None:
        """In the worker's thread: end here if there is no reason to go on."""
        if self._given_up.is_set() or time.monotonic() > self.deadline:
            raise Cancelled

    def run(self) -> None:
        """In the worker's thread."""
        _here.job = self
        items: Iterator[Item] | None = None
        try:
            self.check()
            items = iter(self._make())
            for item in items:
                self._tell(item)
                self.check()
            self._tell(_END)
        except BaseException as error:
            self._tell(error)
        finally:
            # A generator that is not at its end is closed here and now, in the thread that it belongs to.
            close = getattr(items, "close", None)
            if close is not None:
                with suppress(Exception):
                    close()
            _here.job = None

    def _tell(self, item: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._made.put_nowait, item)

    async def items(self) -> AsyncGenerator[Item, None]:
        """What is made, as it is made. To leave it early gives the job up."""
        try:
            while True:
                left = self.deadline - time.monotonic()
                try:
                    # Not `wait_for`: until Python 3.12 it forgets that it was cancelled if something comes just then.
                    async with asyncio.timeout(max(left, 0) + 0.05):
                        item = await self._made.get()
                except TimeoutError:
                    raise _too_long() from None
                if item is _END:
                    return
                if isinstance(item, Cancelled):
                    raise _too_long() from None
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.give_up()


def _too_long() -> ApiError:
    return ApiError(504, "It took too long; ask for less, or try again later.", code="timeout", retry_after=5)


class WorkLine:
    """The line that jobs wait in, and the threads that take them from it."""

    def __init__(self, *, workers: int, waiting: int, timeout: float) -> None:
        self._waiting_at_most, self._timeout = waiting, timeout
        self._line: deque[Job[Any]] = deque()
        self._changed = threading.Condition()
        self._working = 0
        self._current: set[Job[Any]] = set()
        self._workers = workers
        self._is_open = True
        self._usual_seconds = 2.0
        # Daemons: a server that has to stop does not wait for them.
        for number in range(workers):
            threading.Thread(target=self._work, name=f"studio-worker-{number}", daemon=True).start()

    @property
    def waiting(self) -> int:
        return len(self._line)

    @property
    def working(self) -> int:
        return self._working

    @property
    def overdue(self) -> float:
        """Seconds by which a job that is worked on has outlasted its time: a computation that does not end."""
        now = time.monotonic()
        return max([0.0, *(now - job.deadline for job in list(self._current))])

    def submit(self, make: Callable[[], Iterable[Item]]) -> Job[Item]:
        """Get into the line; 429 where it is full."""
        job = Job(make, time.monotonic() + self._timeout)
        with self._changed:
            # Who has left does not wait.
            self._line = deque(other for other in self._line if not other._given_up.is_set())
            idle = self._workers - self._working - len(self._line)
            if len(self._line) >= self._waiting_at_most and idle <= 0:
                raise ApiError(
                    429,
                    f"{len(self._line)} requests are waiting already; come back later.",
                    code="queue_full",
                    retry_after=self._usual_seconds * (len(self._line) + 1) / self._workers,
                )
            self._line.append(job)
            self._changed.notify()
        return job

    async def once(self, make: Callable[[], Item]) -> Item:
        """One thing, made in its turn."""
        async with aclosing(self.submit(lambda: iter((make(),))).items()) as items:
            async for item in items:
                return item
        raise AssertionError("a job that makes one thing has made none")

    def close(self) -> None:
        """No thread takes another job."""
        with self._changed:
            self._is_open = False
            for job in self._line:
                job.give_up()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._line and self._is_open:
                    self._changed.wait()
                if not self._is_open:
                    return
                job = self._line.popleft()
                self._working += 1
                self._current.add(job)
            begin = time.monotonic()
            try:
                job.run()
            finally:
                with self._changed:
                    self._working -= 1
                    self._current.discard(job)
                    self._usual_seconds += 0.2 * (time.monotonic() - begin - self._usual_seconds)
            give_memory_back()


def check_wanted() -> None:
    """End the job of this thread if nobody waits for it; nothing in threads that have none."""
    job = getattr(_here, "job", None)
    if job is not None:
        job.check()


def interruptible(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> nn.Module:
    """Ask before every call of such a part of the model whether its job is still wanted."""
    for part in model.modules():
        if isinstance(part, kinds):
            part.register_forward_pre_hook(lambda *_: check_wanted())
    return model
