"""Many clients at once who ask a studio to speak, and note what became of every request.

They speak HTTP themselves, over plain sockets: what matters here is whether an answer came whole, which a library would
rather not tell.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """What a client has seen. `first` and `seconds` are from the request to the first byte of sound and to the end."""

    fate: str
    status: int | None = None
    retry_after: float | None = None
    size: int = 0
    first: float = 0.0
    seconds: float = 0.0
    body: bytes = b""


ANSWERED, REFUSED, FAILED, BROKEN, LOST = "answered", "refused", "failed", "broken", "lost"
"""Whole; told when to come back; another error; broken off, which a client notices; no end in all its patience."""


async def ask(address: str, asked: dict[str, Any], *, patience: float = 60.0, key: str | None = None) -> Answer:
    """One request for speech, on a connection of its own."""
    begin = time.perf_counter()
    seen: dict[str, Any] = {}
    try:
        async with asyncio.timeout(patience):
            fate = await _exchange(address, asked, key, seen, begin)
    except TimeoutError:
        fate = LOST
    except (OSError, EOFError, ValueError):
        fate = BROKEN
    return Answer(fate, seconds=time.perf_counter() - begin, **seen)


async def _exchange(address: str, asked: dict[str, Any], key: str | None, seen: dict[str, Any], begin: float) -> str:
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        body = json.dumps(asked).encode()
        lines = ["POST /v1/audio/speech HTTP/1.1", f"Host: {place.netloc}", "Connection: close"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += [f"Authorization: Bearer {key}"] if key else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        status = int((await _line(reader)).split()[1])
        headers = {}
        while line := await _line(reader):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        told = headers.get("retry-after", "")
        seen |= {"status": status, "retry_after": float(told) if told else None}
        pieces = []
        async for piece in _pieces(reader, headers):
            if not pieces:
                seen["first"] = time.perf_counter() - begin
            pieces.append(piece)
            seen["size"] = seen.get("size", 0) + len(piece)
        seen["body"] = b"".join(pieces)
    finally:
        writer.close()
    if status == 200:
        return ANSWERED
    return REFUSED if status in (429, 503) and seen["retry_after"] is not None else FAILED


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return line.decode("latin-1").rstrip("\r\n")


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> Any:
    """The body as it comes; EOFError where it ends too early."""
    if headers.get("transfer-encoding") == "chunked":
        while size := int((await _line(reader)).partition(";")[0], 16):
            yield await reader.readexactly(size)
            await _line(reader)
        return
    # An answer that ends with its connection could not be told from half of one: there must be a length.
    yield await reader.readexactly(int(headers["content-length"]) if "content-length" in headers else _no_length())


def _no_length() -> int:
    raise EOFError


async def load(
    address: str,
    asking: Callable[[int], dict[str, Any]],
    *,
    clients: int,
    seconds: float,
    patience: float = 60.0,
    wait_at_most: float | None = None,
    key: str | None = None,
    at_most: int = 100_000,
) -> list[Answer]:
    """So many clients, each asking again once it is answered; who is refused comes back when it was told to.

    `asking` makes the request of a number. After `seconds` nobody begins another, and all wait for their last answer.
    """
    answers: list[Answer] = []
    until, begun = time.monotonic() + seconds, 0

    async def client() -> None:
        nonlocal begun
        while time.monotonic() < until and begun < at_most:
            begun += 1
            answer = await ask(address, asking(begun - 1), patience=patience, key=key)
            answers.append(answer)
            if answer.fate != ANSWERED:
                wait = 1.0 if answer.retry_after is None else answer.retry_after
                wait = wait if wait_at_most is None else min(wait, wait_at_most)
                await asyncio.sleep(max(0.0, min(wait, until - time.monotonic())))

    await asyncio.gather(*(client() for _ in range(clients)))
    assert len(answers) == begun, "a client has left without noting its answer"
    return answers


def fates(answers: list[Answer]) -> Counter[str]:
    return Counter(answer.fate for answer in answers)
