"""What the benchmarks share: CPU seconds of a call, and another library's figures taken in the same run."""

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from typing import Any

Records = dict[str, list[dict[str, Any]]]


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Of this process, all its threads together."""
    start = time.process_time()
    call()
    return time.process_time() - start


def beside(command: str | None) -> Records:
    """The other library's records by name, measured now."""
    if command is None:
        return {}
    output = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True).stdout
    found: Records = {}
    for line in output.splitlines():
        if line.startswith("REC "):
            record = json.loads(line.removeprefix("REC "))
            found.setdefault(record["name"], []).append(record)
    return found
