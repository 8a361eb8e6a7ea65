"""Recordings of several speakers, one of each after another."""

from collections.abc import Iterable
from itertools import zip_longest
from typing import TypeVar

from madrigal.data.manifest import Entry

Piece = TypeVar("Piece")


def in_turn(entries: Iterable[Entry]) -> list[Entry]:
    """The recordings, one of each speaker after another: the first of them are of all speakers."""
    return by_turns((entry.speaker, entry) for entry in entries)


def by_turns(pieces: Iterable[tuple[str | None, Piece]]) -> list[Piece]:
    """Every speaker's first piece, then every speaker's second, …"""
    own: dict[str | None, list[Piece]] = {}
    for speaker, piece in pieces:
        own.setdefault(speaker, []).append(piece)
    return [piece for turn in zip_longest(*own.values()) for piece in turn if piece is not None]
