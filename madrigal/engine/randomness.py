"""Every random number of a run comes from a generator seeded by where it is drawn.

A step is a pure function of (seed, step): nothing about randomness is ever saved, and a run that is resumed
draws what the unbroken run would have drawn.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from madrigal.errors import UserError


def seed_for(*place: int | str) -> int:
    """A 63-bit seed for a place such as `(seed, step, "generator", micro_batch)`, the same everywhere."""
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(*place: int | str) -> None:
    """Seed Python, NumPy and torch (all devices) for this place."""
    seed = seed_for(*place)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seeds_of(seeds: Sequence[int] | int, rows: int) -> list[int]:
    """One seed for each row: row r of a generation with seed s draws as a generation alone with seed s + r."""
    if isinstance(seeds, int):
        return [seeds + row for row in range(rows)]
    if len(seeds) != rows:
        raise UserError(f"{len(seeds)} seeds were given for {rows} rows; give one for each, or a single one.")
    return list(seeds)


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Whatever is drawn inside leaves the generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
