"""Metrics over processes: a few jobs in flight, each a pair of waves in and a dict of numbers out."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self

from madrigal.errors import UserError
from madrigal.judge.metrics import measure
from madrigal.judge.signals import Wave

Key = tuple[int, str]
"""(number of the utterance, label of the system)."""


def processors() -> int:
    """The processors this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_thread() -> None:
    # One process a core is the parallelism; threads of linear algebra on top of it only get in the way.
    importlib.import_module("threadpoolctl").threadpool_limits(1)


def _let_go(executor: ProcessPoolExecutor) -> None:
    """End the thread that writes to processes which have died.

    In the first releases of Python 3.11 it waits for ever for somebody to read, and who closes the pool for it
    (gh-94777); later ones do the same themselves, by what is looked for here.
    """
    queue = getattr(executor, "_call_queue", None)
    if queue is not None and not hasattr(queue, "_terminate_broken"):
        queue._reader.close()


class MetricPool:
    """Measures pairs of waves [channels, samples] in spawned processes, or at once where workers is 0.

    Spawned, because a fork of a process in which torch has started its threads can hang. At most two jobs a
    process wait at any time, so that memory does not grow with the number of utterances.
    """

    def __init__(self, names: tuple[str, ...], workers: int | None = None) -> None:
        self.names = names
        self.workers = processors() if workers is None else workers
        self.scores: dict[Key, dict[str, float]] = {}
        self._waiting: dict[Future[dict[str, float]], Key] = {}
        self._executor: ProcessPoolExecutor | None = None
        self._is_broken = False

    def __enter__(self) -> Self:
        if self.workers > 0 and self.names:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_one_thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            if self._is_broken:
                _let_go(self._executor)
            self._executor.shutdown(wait=True, cancel_futures=kind is not None)

    def add(self, key: Key, reference: Wave, degraded: Wave, rate: int) -> None:
        """Measure this pair under `key`, now or soon; waits while too many are under way."""
        if self._executor is None:
            self.scores[key] = measure(reference, degraded, rate, self.names)
            return
        while len(self._waiting) >= 2 * self.workers:
            self._collect()
        try:
            future = self._executor.submit(measure, reference, degraded, rate, self.names)
        except BrokenProcessPool as error:
            raise self._died() from error
        self._waiting[future] = key

    def finish(self) -> dict[Key, dict[str, float]]:
        """Wait for all, and give the scores by key."""
        while self._waiting:
            self._collect()
        return self.scores

    def _collect(self) -> None:
        done, _ = wait(self._waiting, return_when=FIRST_COMPLETED)
        for future in done:
            key = self._waiting.pop(future)
            try:
                self.scores[key] = future.result()
            except BrokenProcessPool as error:
                raise self._died() from error

    def _died(self) -> UserError:
        self._is_broken = True
        return UserError(
            "A process that computes metrics died: in a script, call evaluate_codec under "
            "`if __name__ == '__main__':`, or pass workers=0; if memory ran out, pass fewer workers."
        )
