"""The studio on many machines: replicas of the one application under Ray Serve.

Nothing of it is pickled but its settings, which are plain data: every replica makes the application for itself, and
loads and warms its voice before it is sent a request. Replicas share the studio's folder and nothing else.
"""

import math
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from madrigal.engine.clusters import LOCAL, import_ray, join_cluster
from madrigal.engine.machine import prepare_process
from madrigal.errors import UserError
from madrigal.studio.settings import StudioSettings

NAME = "studio"
"""Of the application, among those of a cluster."""
SPARE = 32
"""Requests to a replica, beside those that want its worker: pages, lists, curves, and the 429s themselves."""


class FleetSettings(StudioSettings):
    """A studio, and how many there are of it. What a manifest gives as `args`."""

    api_key_file: Path | None = Field(None, description="a file that holds the key, on every machine")
    no_key: bool = Field(False, description="serve everybody who reaches it")
    replicas: int = Field(1, ge=1, description="copies of the studio; the fewest, where their number changes")
    max_replicas: int | None = Field(None, ge=1, description="the most copies; their number follows the requests")
    busy: float = Field(2.0, gt=0, description="open requests a copy, over which there are more copies")
    cpus: float = Field(1.0, ge=0, description="cores that a copy reserves, and threads that it computes with")
    gpus: float = Field(0.0, ge=0, description="GPUs that a copy reserves; less than 1 shares one")
    json_logs: bool = Field(False, description="one JSON object a request on the log of a copy")
    app: str = Field("madrigal.studio.app:create_app", description="what makes the application of its settings")

    @model_validator(mode="after")
    def _is_safe(self) -> "FleetSettings":
        if self.control:
            raise ValueError("a fleet starts no trainings, for they would end with the copy that did: leave control")
        if self.api_key is not None:
            raise ValueError("Ray keeps and shows what copies are told: put the key into a file, and give api_key_file")
        if self.api_key_file is None and not self.no_key:
            raise ValueError("a fleet is reached from other machines: give api_key_file, or no_key if all may use it")
        return self


class Replica:
    """One copy of the studio. Ray Serve hands it the requests that its proxies accept."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = FleetSettings(**settings)

    async def __serve_build_asgi_app__(self) -> Any:
        """The application, when it is fit to be asked: a copy that is not warm yet gets no requests."""
        from madrigal.studio.server import set_up_logs

        set_up_logs(self._settings.json_logs)
        prepare_process()
        room, _, maker = self._settings.app.partition(":")
        told = self._settings.model_dump(include=set(StudioSettings.model_fields))
        app = getattr(import_module(room), maker)(StudioSettings(**{**told, "api_key": self._key(), "warm": False}))
        self._studio = app.state.studio
        if self._settings.warm:
            await self._studio.warm_up()
        return app

    def _key(self) -> str | None:
        """From the file on this machine: what a copy is told, Ray keeps and shows."""
        file = self._settings.api_key_file
        try:
            return None if file is None else file.read_text().strip()
        except OSError as error:
            raise UserError(f"The key in {file} cannot be read on {platform.node()}; put the file there.") from error

    async def check_health(self) -> None:
        """Ray asks now and then, and replaces a copy that does not answer, or whose work does not end."""
        overdue = self._studio.line.overdue
        if overdue > self._settings.limits.grace_seconds:
            raise RuntimeError(f"A piece of work should have ended {overdue:.0f} seconds ago.")


def build(settings: FleetSettings) -> Any:
    """The application for Ray Serve: `madrigal.studio.fleet:build` is the import path of a manifest."""
    serve = import_module("ray.serve")
    limits = settings.limits
    own = limits.workers + limits.waiting + SPARE
    if settings.max_replicas is None:
        number: dict[str, Any] = {"num_replicas": settings.replicas}
    else:
        scaling = {
            "min_replicas": settings.replicas,
            "max_replicas": max(settings.replicas, settings.max_replicas),
            "target_ongoing_requests": settings.busy,
            "upscale_delay_s": 10,
            "downscale_delay_s": 300,
        }
        number = {"autoscaling_config": scaling}
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        # A copy refuses by itself what is too much for it, in words; what it cannot even hear is refused before.
        max_ongoing_requests=own,
        max_queued_requests=own,
        backpressure_config={"status_code": 429, "retry_after_s": 5},
        health_check_period_s=10,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=limits.grace_seconds,
        ray_actor_options={"num_cpus": settings.cpus, "num_gpus": settings.gpus},
        **number,
    )
    # Copies begin in folders of their own.
    runs = tuple(path.absolute() for path in settings.voice_runs)
    key = settings.api_key_file and settings.api_key_file.absolute()
    places = {"folder": settings.folder.absolute(), "voice_runs": runs, "api_key_file": key}
    return deployment.bind(settings.model_copy(update=places).model_dump(mode="json"))


def serve_fleet(
    settings: StudioSettings,
    address: str,
    *,
    host: str,
    port: int,
    replicas: int = 1,
    max_replicas: int | None = None,
    json_logs: bool = False,
    api_key_file: Path | None = None,
) -> None:
    """Serve from a cluster until SIGINT or SIGTERM; then finish what is going on, and take the replicas down."""
    if settings.control:
        raise UserError("A fleet starts no trainings, for they would end with the copy that did; leave --control away.")
    if settings.api_key is not None and api_key_file is None:
        raise UserError("A fleet takes its key from a file, for Ray keeps and shows what copies are told: name it.")
    told = {
        **settings.model_dump(exclude={"api_key"}),
        "api_key_file": api_key_file,
        "no_key": api_key_file is None,  # whoever calls this has said so
        "replicas": replicas,
        "max_replicas": max_replicas,
        "cpus": settings.limits.workers,
        "gpus": 1 if settings.device.startswith("cuda") else 0,
        "json_logs": json_logs,
    }
    over = threading.Event()
    with running(FleetSettings(**told), address, host=host, port=port):
        # Only now, for Ray has a way of its own to take SIGTERM.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        shown = f"[{host}]" if ":" in host else host
        print(f"Madrigal studio: http://{shown}:{port} on the Ray cluster {address}", file=sys.stderr, flush=True)
        over.wait()


@contextmanager
def running(settings: FleetSettings, address: str, *, host: str, port: int) -> Iterator[None]:
    """A fleet on a cluster, or ("local") on one that is started here, for as long as this lasts."""
    ray, serve = import_ray("serve")
    most = max(settings.replicas, settings.max_replicas or 1)
    join_cluster(ray, address, cores=math.ceil(most * settings.cpus))
    try:
        serve.start(
            proxy_location="EveryNode",
            http_options={
                "host": host,
                "port": port,
                # The studio's own limits end a request before; this is for a copy that cannot say so any more.
                "request_timeout_s": settings.limits.timeout_seconds + settings.limits.stall_seconds,
                "keep_alive_timeout_s": 15,
            },
        )
        serve.run(build(settings), name=NAME, route_prefix="/")
        yield
    finally:
        if address == LOCAL:
            serve.shutdown()
        else:
            serve.delete(NAME)
        ray.shutdown()
