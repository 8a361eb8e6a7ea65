"""The workers of `tokenize`: spawned processes of this machine, or actors of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

from madrigal.engine.clusters import import_ray, join_cluster
from madrigal.errors import UserError
from madrigal.tokenizers.token_making import Given, Job, ShardMaker

Setting = tuple[Sequence[Given], Sequence[Path], Path]
"""What a ShardMaker is made of."""


def in_processes(
    jobs: Sequence[Job], setting: tuple[Any, ...], *, workers: int, maker: Callable[..., Any] = ShardMaker
) -> Iterator[int]:
    """Do the jobs in so many processes of one thread each; gives the shard numbers as they are finished.

    Each process calls `maker` with the setting, and what that gives with every job and with a function that says
    whether it is over. Spawned, because a fork of a process in which torch has started its threads can hang.
    """
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(maker, setting, over)) as pool:
        waiting = {pool.submit(_make, job): job for job in jobs}
        try:
            for future in as_completed(waiting):
                future.result()
                yield waiting[future]["number"]
        except BrokenProcessPool as error:
            raise UserError(
                "A process that makes tokens died: if memory ran out, give fewer --workers or shorter recordings; in "
                "a script, call tokenize_manifest under `if __name__ == '__main__':`."
            ) from error
        finally:
            # Whoever interrupts does not want to wait for shards that are under way.
            over.set()
            pool.shutdown(cancel_futures=True)


_worker: Callable[[Job], None]


def _start(maker: Callable[..., Any], setting: tuple[Any, ...], over: Any) -> None:
    global _worker
    # Ctrl-C reaches all processes; the first of them tells the others when to leave.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    make = maker(*setting)

    def worker(job: Job) -> None:
        make(job, over.is_set)

    _worker = worker


def _make(job: Job) -> None:
    _worker(job)


def _leave_with_parent() -> None:
    """A pool's process would wait for ever for the next job of a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def on_ray(jobs: Sequence[Job], setting: Setting, *, workers: int, address: str) -> Iterator[int]:
    """Do the jobs with so many actors of Ray Data, on a cluster or ("local") on one started here."""
    ray, data = import_ray("data")
    is_ours = not ray.is_initialized()
    if is_ours:
        join_cluster(ray, address, cores=workers)
    try:
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        getLogger("ray.data").setLevel(ERROR)
        rows = data.from_items(list(jobs), override_num_blocks=len(jobs)).map(
            _Actor,
            fn_constructor_args=(setting,),
            compute=data.ActorPoolStrategy(size=min(workers, len(jobs))),
            num_cpus=1,
        )
        for row in rows.iter_rows():
            if row["mistake"]:
                raise UserError(row["mistake"])
            yield int(row["number"])
    finally:
        if is_ours:
            ray.shutdown()


class _Actor:
    """Makes a shard of each row; a mistake of the user travels back as a sentence, for Ray would wrap it."""

    def __init__(self, setting: Setting) -> None:
        self._make = ShardMaker(*setting)

    def __call__(self, job: Job) -> dict[str, Any]:
        try:
            self._make(job)
        except UserError as error:
            return {"number": job["number"], "mistake": str(error)}
        return {"number": job["number"], "mistake": ""}
