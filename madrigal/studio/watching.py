"""Figures of the server itself, for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_AUDIO = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 4, 8, 16, 32, 64)
_WORK = (0.1, 0.3, 1, 3, 10, 30, 100)


class Watching:
    """What is counted; one of these belongs to one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.is_leaving = False
        self.now_open = 0
        own: dict[str, Any] = {"registry": self.registry, "namespace": "madrigal"}
        self.requests = Counter("requests", "Requests by route and status", ["route", "method", "status"], **own)
        self.open = Gauge("requests_open", "Requests that are open now", **own)
        self.open.set_function(lambda: self.now_open)
        self.waiting = Gauge("work_waiting", "Jobs that wait for their turn", **own)
        self.working = Gauge("work_running", "Jobs that are worked on now", **own)
        self.audio_seconds = Counter("audio_seconds", "Seconds of audio made", ["model"], **own)
        self.first_audio = Histogram(
            "first_audio_seconds", "From a request to the first sound of its answer", buckets=_FIRST_AUDIO, **own
        )
        self.work_seconds = Histogram("work_seconds", "From a request to the end of its work", buckets=_WORK, **own)
        self.models_loaded = Gauge("models_loaded", "Models in memory", **own)

    def text(self) -> bytes:
        return generate_latest(self.registry)
