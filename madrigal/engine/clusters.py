"""Ray, where it is installed: how Madrigal joins a cluster that is running, or starts one on this machine."""

import os
import socket
from importlib import import_module
from typing import Any

from madrigal.errors import UserError

LOCAL = "local"
"""In the place of an address: a cluster of this machine, which ends with the process."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would send notes about its use over the network
    "RAY_worker_niceness": "0",  # its workers would wait for everything else on this machine
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # it would warn about what Ray Data does by design
}


def import_ray(part: str) -> tuple[Any, Any]:
    """Ray and a part of it, `data` or `serve`; it reads its settings when it is imported."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("ray"), import_module(f"ray.{part}")
    except ImportError as error:
        raise UserError(f"--ray needs Ray {part.capitalize()}: pip install 'madrigal[ray]'.") from error


def join_cluster(ray: Any, address: str, *, cores: int) -> None:
    """Join the cluster at an address; a `local` one has so many cores."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address == LOCAL:
            ray.init(LOCAL, num_cpus=cores, include_dashboard=False, **quiet)
            return
        host, _, port = address.rpartition("/")[2].rpartition(":")
        if port.isdigit():
            # Ray itself would wait for minutes and then end the process.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, **quiet)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise UserError(f"There is no Ray cluster at {address} ({error}); give its address, or local.") from error
