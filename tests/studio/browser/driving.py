"""A studio as a process of its own, and Debian's Chromium to look at it; tests and the screenshots use both."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
]
ROOT = Path(__file__).parents[3]
SENTENCE = "The quick brown fox jumps over the lazy dog."
WAIT = float(os.environ.get("STUDIO_BROWSER_SECONDS", "60"))
"""Seconds to wait for something to appear; a busy machine may need more of them."""


def chromium() -> str | None:
    """Where the browser is; None where it is not installed."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def missing() -> str | None:
    """What to install before a browser can be driven; None where all is there."""
    try:
        import fastapi  # noqa: F401
        import playwright  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'madrigal[studio,dev]'"
    return None if chromium() else "chromium is not installed: apt-get install chromium"


@contextmanager
def studio(folder: Path, *options: str, log: Path | None = None) -> Iterator[str]:
    """`madrigal studio folder …` on a free port; gives its address and ends it afterwards."""
    command = [sys.executable, "-m", "madrigal.cli", "studio", str(folder), "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if "http://" in line:
                address = line[line.index("http://") :].strip()
                break
        else:
            raise RuntimeError("The studio did not start:\n" + "".join(said))
        drain = threading.Thread(target=_copy, args=(process.stderr, log), daemon=True)
        drain.start()
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _copy(lines: Any, log: Path | None) -> None:
    """What the studio says must be read, or it would wait for a reader."""
    with (log or Path(os.devnull)).open("a") as file:
        for line in lines:
            file.write(line)
            file.flush()


@contextmanager
def browser(flags: Sequence[str] = ()) -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium(), args=[*FLAGS, *flags])
        try:
            yield made
        finally:
            made.close()


def until(page: Any, expression: str, argument: Any = None) -> None:
    """Wait until an expression of the page is true; Playwright's own way needs `eval`, which the policy forbids."""
    end = time.monotonic() + WAIT
    while not page.evaluate(expression, argument):
        if time.monotonic() > end:
            raise AssertionError(f"In {WAIT:.0f} s it did not come true that {expression}")
        page.wait_for_timeout(40)
