"""The studio with the shipped voice: how soon it speaks when idle, and what becomes of fifty clients in two minutes.

The server is a process of its own, as `madrigal studio` starts it, or with --replicas a fleet of so many on a Ray
cluster of this machine. Its memory is what it holds of the machine (RSS), when it is warm, in the middle and at the
end; that of a fleet is the sum of its replicas, in which what they share counts for each. The real-time factor is
seconds of waiting for a second of sound.
"""

import argparse
import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "studio"))

from load import ANSWERED, Answer, ask, load  # noqa: E402

SENTENCES = (
    "Good morning, how are you today?",
    "The train to the coast leaves at nine.",
    "It is five o'clock, and all is well.",
    "Please bring me the book that lies on the table.",
)
BYTES_A_SECOND = 2 * 24_000
TIMEOUT, PATIENCE = 120, 180
"""Seconds that the server gives a request, and that a client waits: longer, so that whoever is not answered is lost."""


def asking(number: int) -> dict[str, Any]:
    text = SENTENCES[number % len(SENTENCES)]
    return {"model": "tts-1", "input": text, "response_format": "pcm", "seed": number % 1000}


def started(folder: Path, command: list[str], log: Path, replicas: int) -> tuple[subprocess.Popen[bytes], str]:
    """The server, and its address, which it says on its log; `replicas` are those of a fleet, or 0."""
    words = [*command, sys.executable, "-m", "madrigal.cli", "studio", str(folder), "--timeout", str(TIMEOUT)]
    if replicas:
        words += ["--ray", "local", "--replicas", str(replicas), "--port", str(free_port())]
    else:
        words += ["--port", "0"]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(words, stderr=log.open("wb"), env={**os.environ, "PYTHONPATH": paths})
    until = time.monotonic() + 600
    while time.monotonic() < until and server.poll() is None:
        if found := re.search(r"Madrigal studio: (http://\S+)", log.read_text(errors="replace")):
            return server, found[1]
        time.sleep(0.2)
    raise SystemExit(f"The server did not start: {log.read_text(errors='replace')[-2000:]}")


def free_port() -> int:
    """A fleet is not told its port by the system, as a server is that asks for port 0."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def commanding(server: subprocess.Popen[bytes]) -> psutil.Process:
    """The command itself, below whatever it was started through."""
    first = psutil.Process(server.pid)
    of_python = [process for process in [first, *first.children(True)] if "madrigal.cli" in process.cmdline()]
    return of_python[-1]


def serving(command: psutil.Process, replicas: int) -> list[psutil.Process]:
    """Who answers: the command, or the replicas below it."""
    if not replicas:
        return [command]
    found = [
        process for process in command.children(True) if "".join(process.cmdline()).startswith("ray::ServeReplica")
    ]
    assert len(found) == replicas, f"of {replicas} replicas {len(found)} are there"
    return found


def held(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)


def spent(processes: list[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


async def measure(
    address: str, processes: list[psutil.Process], *, clients: int, seconds: float, alone: int
) -> dict[str, Any]:
    assert (await ask(address, asking(0), patience=600)).fate == ANSWERED  # it waits for the voice to be loaded
    idle = [await ask(address, asking(number), patience=PATIENCE) for number in range(alone)]
    memory = {0: held(processes)}
    before = spent(processes)
    begin = time.monotonic()

    async def watch() -> None:
        for share in (0.25, 0.5, 0.75, 1.0):
            await asyncio.sleep(max(0.0, begin + share * seconds - time.monotonic()))
            memory[round(share * seconds)] = held(processes)

    watching = asyncio.ensure_future(watch())
    answers = await load(address, asking, clients=clients, seconds=seconds, patience=PATIENCE)
    await watching
    lasted = time.monotonic() - begin
    memory[round(lasted)] = held(processes)
    after = spent(processes)
    done = [answer for answer in answers if answer.fate == ANSWERED]
    return {
        "idle": told(idle),
        "clients": clients,
        "seconds": round(lasted, 1),
        "requests": len(answers),
        "fates": dict(Counter(answer.fate for answer in answers)),
        "statuses": {str(status): n for status, n in Counter(answer.status for answer in answers).items()},
        "without Retry-After": sum(a.status in (429, 503) and a.retry_after is None for a in answers),
        "answered": told(done),
        "sound a second": round(sum(answer.size for answer in done) / BYTES_A_SECOND / lasted, 2),
        "processor seconds": round(after - before, 1),
        "memory, MB, by second": {str(at): round(size / 1e6) for at, size in memory.items()},
    }


def told(answers: list[Answer]) -> dict[str, Any]:
    """Time to first audio, and the real-time factor."""
    if not answers:
        return {}
    first = sorted(answer.first for answer in answers)
    factor = [answer.seconds / (answer.size / BYTES_A_SECOND) for answer in answers]
    at = {name: round(1000 * first[int(share * (len(first) - 1))]) for name, share in SHARES.items()}
    return {"n": len(answers), "first audio, ms": at, "real-time factor": round(statistics.median(factor), 2)}


SHARES = {"median": 0.5, "90 %": 0.9, "99 %": 0.99, "most": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--alone", type=int, default=12, help="requests before that, one after the other")
    parser.add_argument("--through", default="", help="words before the server's command, such as 'taskset -c 0'")
    parser.add_argument("--replicas", type=int, default=0, help="serve by so many on a Ray cluster of this machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "runs").mkdir()
        log, replicas = Path(folder) / "log", arguments.replicas
        server, address = started(Path(folder) / "runs", arguments.through.split(), log, replicas)
        command = commanding(server)
        try:
            found = asyncio.run(
                measure(
                    address,
                    serving(command, replicas),
                    clients=arguments.clients,
                    seconds=arguments.seconds,
                    alone=arguments.alone,
                )
            )
        finally:
            command.terminate()
            server.wait(120)
    for name, value in found.items():
        print(f"{name}: {json.dumps(value)}", flush=True)


if __name__ == "__main__":
    main()
