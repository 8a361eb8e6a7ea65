"""The process that serves: it says where, and leaves in good order when it is asked to."""

import asyncio
import logging
import os
import signal
import socket
import sys
from types import FrameType

import uvicorn

from madrigal.errors import UserError
from madrigal.studio.app import create_app
from madrigal.studio.guards import JsonLines, is_worth_a_line
from madrigal.studio.serving import Studio
from madrigal.studio.settings import StudioSettings


def serve(settings: StudioSettings, *, host: str, port: int, json_logs: bool = False) -> None:
    """Serve until SIGINT or SIGTERM: then finish what is going on, and refuse what is new."""
    listening = bound(host, port, settings.limits.stall_seconds)
    set_up_logs(json_logs)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        # The same with and without Ray, which brings others that uvicorn would take by itself.
        http="h11",
        loop="asyncio",
        server_header=False,
        h11_max_incomplete_event_size=64 * 1024,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=5,
    )
    shown = f"[{host}]" if ":" in host else host
    print(f"Madrigal studio: http://{shown}:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    studio: Studio = app.state.studio
    _Server(config, studio).run(sockets=[listening])
    if studio.line.working:
        # A computation that outlived the grace time cannot be stopped, and must not be torn down under its feet.
        logging.shutdown()
        os._exit(0)


class _Server(uvicorn.Server):
    """On the first signal no new work is taken, and the server stays until what is going on is finished."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self._studio = studio

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._studio.watching.is_leaving or not self.started:
            super().handle_exit(sig, frame)
            return
        self._studio.watching.is_leaving = True
        asyncio.get_running_loop().create_task(self._leave())
        # Left as uvicorn would have: with the status of what stopped it only where that was not a plain stop.
        self._captured_signals = [
            number for number in getattr(self, "_captured_signals", []) if number != signal.SIGTERM
        ]

    async def _leave(self) -> None:
        """Idle for a moment, so that the last answer is on its way; or at the end of the grace time."""
        until = asyncio.get_running_loop().time() + self._studio.settings.limits.grace_seconds
        while asyncio.get_running_loop().time() < until and self._studio.is_busy:
            await asyncio.sleep(0.05)
        self.should_exit = True


def bound(host: str, port: int, stall_seconds: float) -> socket.socket:
    """A socket that listens; who takes nothing of what was sent to it for long is cut off."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # A connection that is closed stays until its last bytes are taken, which may be never.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(2000 * stall_seconds))
        listening.bind((host, port))
        listening.listen(1024)
        listening.setblocking(False)
    except OSError as error:
        raise UserError(
            f"The studio cannot listen at {host}:{port} ({error.strerror or error}); choose another --port or --host."
        ) from error
    return listening


def set_up_logs(as_json: bool) -> None:
    """Lines of the studio on the error stream, for people or for programs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(is_worth_a_line)
    for name, level in {"madrigal.studio": logging.INFO, "uvicorn": logging.WARNING}.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
