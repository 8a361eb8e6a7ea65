"""The fenced blocks of a page, and how to run them as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madrigal.cli import main

ROOT = Path(__file__).parents[2]
SECONDS = 300
"""After so long a command that was started hangs."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and where it stands."""

    language: str
    text: str
    where: str

    def shortened(self, instead: Mapping[str, str]) -> Block:
        text = self.text
        for long, short in instead.items():
            text = text.replace(long, short)
        return Block(self.language, text, self.where)

    def run(self, names: dict[str, Any]) -> None:
        """Python goes on with the names of the page's blocks before it; of bash every line has to succeed."""
        if self.language == "python":
            exec(compile(self.text, self.where, "exec"), names)
            return
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                run_command(words)


def blocks(page: Path) -> Iterator[Block]:
    """Those of bash and Python."""
    text = page.read_text()
    for found in re.finditer(r"^```(bash|python)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text[: found.start()].count("\n") + 1
        yield Block(found[1], found[2], f"{page.relative_to(ROOT)}:{line}")


def run_command(words: list[str]) -> None:
    """`madrigal …` in this process, which has loaded everything already; other commands as processes."""
    if words[0] == "madrigal":
        status: Any = 0
        try:
            main(words[1:])
        except SystemExit as left:
            status = left.code
        assert not status, f"`{shlex.join(words)}` left with {status}"
        return
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"`{shlex.join(words)}` left with {done.returncode}: {done.stderr[-2000:]}"
