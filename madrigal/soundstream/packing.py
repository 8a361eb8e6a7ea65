"""Whole numbers of a few bits each, one after the other without gaps."""

import numpy as np
from numpy.typing import NDArray

MAX_BITS = 32
_WORD = np.dtype(">u4")
"""Most significant byte first, so that the bytes of a number are its bits from left to right."""


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` numbers of `bits` bits take, the last one filled up with zeros."""
    return -(-count * bits // 8)


def pack(numbers: NDArray[np.integer], bits: int) -> bytes:
    """Any shape, in memory order, `bits` bits each, the highest bit first."""
    flat = np.ascontiguousarray(numbers).reshape(-1)
    if flat.size and (flat.min() < 0 or int(flat.max()) >> bits):
        raise ValueError(f"Numbers from {flat.min()} to {flat.max()} do not fit into {bits} bits.")
    words = flat.astype(_WORD).view(np.uint8).reshape(-1, _WORD.itemsize)
    return np.packbits(np.unpackbits(words, axis=1)[:, MAX_BITS - bits :]).tobytes()


def unpack(data: bytes, count: int, bits: int) -> NDArray[np.int64]:
    """The first `count` numbers of `bits` bits: the reverse of `pack`, as [count]."""
    digits = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits).reshape(count, bits)
    words = np.zeros((count, MAX_BITS), np.uint8)
    words[:, MAX_BITS - bits :] = digits
    return np.packbits(words, axis=1).view(_WORD).reshape(count).astype(np.int64)
