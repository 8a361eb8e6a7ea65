"""What every request passes: who asks, from where, how much; and what every answer carries."""

import asyncio
import hmac
import ipaddress
import json
import logging
import time
import uuid
from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from madrigal.studio.errors import ApiError, BrokenOff, as_api_error
from madrigal.studio.settings import StudioSettings
from madrigal.studio.watching import Watching

log = logging.getLogger("madrigal.studio")

POLICY = (
    "default-src 'self'; media-src 'self' blob:; img-src 'self' blob: data:; object-src 'none'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
}
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
CODES = "/v1/audio/codes/decode"
METHODS = SAFE | {"POST", "PUT", "PATCH", "DELETE"}


class Guard:
    """Around the application: nothing gets in unchecked, and nothing gets out without headers, a line and a count."""

    def __init__(
        self, app: ASGIApp, settings: StudioSettings, watching: Watching, routes: Sequence[BaseRoute] = ()
    ) -> None:
        self.app, self.settings, self.watching = app, settings, watching
        self._routes = [(route.path_regex, route.path) for route in routes if isinstance(route, Route | Mount)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send, uuid.uuid4().hex)
        scope.setdefault("state", {})["request_id"] = answer.request_id
        begin = time.perf_counter()
        self.watching.now_open += 1
        try:
            self._check(scope)
            await self.app(scope, self._bounded(scope, receive), answer)
        except BrokenOff as error:
            answer.broken_off = error.why.status
            if error.why.code != "client_left":
                raise  # the server breaks the connection off: a half answer must not look whole
        except Exception as error:
            told = as_api_error(error)
            if told.status >= 500 and not isinstance(error, ApiError):
                log.exception("unforeseen", extra={"request_id": answer.request_id})
            if answer.status is not None:
                answer.broken_off = told.status
                raise
            await told.answer()(scope, receive, answer)
        finally:
            self.watching.now_open -= 1
            self._note(scope, answer, time.perf_counter() - begin)

    def _note(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        route, status = self._route(scope), answer.final_status
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.watching.requests.labels(route, method, str(status)).inc()
        told = {
            "request_id": answer.request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 4),
            "bytes": answer.bytes,
            "client": (scope.get("client") or ["-"])[0],
        }
        log.info("%s %s %s", scope["method"], route, status, extra={"request": told})

    def _route(self, scope: Scope) -> str:
        """With its placeholders; also of a request that was refused before its route was looked for."""
        if "route" in scope:
            return str(getattr(scope["route"], "path", "unknown"))
        return next((path for pattern, path in self._routes if pattern.match(scope["path"])), "unknown")

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        if path == "/healthz":
            return
        if self.watching.is_leaving:
            raise ApiError(503, "The server is about to stop; try again.", code="stopping", retry_after=5)
        if self.watching.now_open > self.settings.limits.requests:
            raise ApiError(503, "Too many requests are open; come back later.", code="overloaded", retry_after=5)
        self._check_place(headers, scope["method"])
        if self.settings.api_key is not None and not _is_open(path):
            self._check_key(headers)
        length = headers.get("content-length", "0")
        if not length.isdigit():
            raise ApiError(400, "Content-Length is no number.", code="invalid_length")
        if int(length[:20]) > (most := self._most(scope)):
            raise _too_large(most)

    def _check_place(self, headers: Headers, method: str) -> None:
        """A page from elsewhere must not speak through a visitor's browser, by its own name or by one it made up."""
        host = headers.get("host", "")
        if self.settings.api_key is None and not self._is_known(host):
            raise ApiError(
                403,
                "This name is not one that the studio is reached by; start it with --name to add it.",
                code="unknown_host",
            )
        if method in SAFE:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if (origin is not None and origin.partition("://")[2] != host) or site in ("cross-site", "same-site"):
            raise ApiError(403, "Requests of pages from elsewhere are refused.", code="foreign_origin")

    def _is_known(self, host: str) -> bool:
        """Numbers cannot be bent to another machine, names can."""
        name = _host_name(host)
        if name == "localhost" or name.endswith(".localhost") or name in self.settings.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _check_key(self, headers: Headers) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        wanted = (self.settings.api_key or "").encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), wanted):
            raise ApiError(401, "An API key is wanted: Authorization: Bearer KEY.", code="invalid_api_key")

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """A body is counted while it comes, whatever its header said, and has to be here in time."""
        limits, most = self.settings.limits, self._most(scope)
        received, is_whole = 0, False
        until = time.monotonic() + limits.timeout_seconds

        async def counted() -> Message:
            nonlocal received, is_whole
            left = min(limits.stall_seconds, max(until - time.monotonic(), 0))
            try:
                # When all of it is here, what is waited for is that the client leaves.
                async with asyncio.timeout(None if is_whole else left):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "The body does not come.") from None
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > most:
                # As an HTTPException it passes through parsers unharmed.
                raise HTTPException(413, _too_large(most).message)
            return message

        return counted

    def _most(self, scope: Scope) -> int:
        """Bytes of a body: what is read as JSON costs many times its size, an upload does not."""
        limits = self.settings.limits
        if Headers(scope=scope).get("content-type", "").lower().startswith("multipart/form-data"):
            return limits.body_bytes
        return min(limits.body_bytes, limits.codes_bytes if scope["path"] == CODES else limits.json_bytes)


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"The body has more than {most} bytes.", code="body_too_large")


def _is_open(path: str) -> bool:
    """The page, and what there is to ask for: both are the same for everybody, and browsers send them no key."""
    return path in ("/", "/favicon.ico", "/docs", "/openapi.json") or path.startswith("/page/")


def _host_name(host: str) -> str:
    """Without the port, in small letters; [::1]:80 is ::1."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


class _Answer:
    """Sends an answer with the headers that all of them have, and notes its status and size."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self.request_id = send, request_id
        self.status: int | None = None
        self.broken_off: int | None = None
        self.is_whole = False
        self.bytes = 0

    @property
    def final_status(self) -> int:
        """What the request comes to: one whose answer did not get to its end was left by its client, or broken off."""
        return self.status if self.status is not None and self.is_whole else self.broken_off or 499

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if self.status == 401:
                headers["WWW-Authenticate"] = "Bearer"
        self.bytes += len(message.get("body", b""))
        await self._send(message)
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """For the server's own log: an answer that was broken off is no crash, and has its line already."""
    return not (record.exc_info and isinstance(record.exc_info[1], BrokenOff))


class JsonLines(logging.Formatter):
    """One JSON object a line, for programs that collect logs."""

    def format(self, record: logging.LogRecord) -> str:
        told = {"time": round(record.created, 3), "level": record.levelname.lower(), "message": record.getMessage()}
        told |= getattr(record, "request", {})
        if hasattr(record, "request_id"):
            told["request_id"] = record.request_id
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)
