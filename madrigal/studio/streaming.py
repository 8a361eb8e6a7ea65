"""Answers that are made while they are sent, and given up when nobody listens."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from madrigal.errors import UserError
from madrigal.studio.errors import ApiError, BrokenOff, as_api_error, client_left

T = TypeVar("T")
PART = 1 << 16
"""Bytes that are sent at once: of a larger piece nobody could tell whether it is being taken."""


async def gone(receive: Receive) -> None:
    """Comes back when the client has left; only after its body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """What `work` comes to, unless the client leaves first: then the work is cancelled."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(gone(request.receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise client_left()
        return task.result()
    finally:
        for each in (task, watch):
            if not each.done():
                each.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await each


class Streamed(Response):
    """Bytes as they come. `pieces` is closed at the end, or as soon as the client has left or takes nothing more."""

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        media_type: str,
        *,
        headers: Mapping[str, str] | None = None,
        stall_seconds: float = 30.0,
        until: Callable[[], float] = lambda: math.inf,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`until` tells the time (monotonic) by which what was made so far has to be taken."""
        self.pieces, self._stall, self._until, self._close = pieces, stall_seconds, until, close
        self.status_code, self.background = 200, None
        self.media_type = media_type
        self.init_headers(headers)

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        self.raw_headers = [(b"content-type", str(self.media_type).encode("latin-1"))]
        self.raw_headers += [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        watch = asyncio.ensure_future(gone(receive))
        try:
            await asyncio.wait({sending, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise BrokenOff(client_left())
            sending.result()
        except (ApiError, UserError) as error:
            # It cannot be told any more; the guard breaks the connection off, and counts it as what it is.
            raise BrokenOff(as_api_error(error)) from None
        finally:
            for each in (sending, watch):
                if not each.done():
                    each.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await each
            if self._close is not None:
                await self._close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self.pieces:
            for begin in range(0, len(piece), PART):
                await self._send_part(send, piece[begin : begin + PART])
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, send: Send, part: bytes) -> None:
        left = min(self._stall, self._until() - time.monotonic())
        try:
            if left <= 0:
                raise TimeoutError  # even where the socket would take it at once
            # Not `wait_for`, as in `Job.items`: who has left while a part was sent would be sent the rest.
            async with asyncio.timeout(left):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)  # a socket that takes all at once must not keep others from their turn
        except TimeoutError:
            raise ApiError(499, "The client takes nothing more, or too slowly.", code="client_stalled") from None
