"""The command in the process of a test, for tests that care about what a verb writes and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from madrigal.cli import main


class Command:
    """`madrigal` in this process, with `first` before its words: its status, and what it said."""

    def __init__(self, captured: pytest.CaptureFixture[str], *first: str) -> None:
        self._captured, self._first = captured, first

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        status: Any = 0
        try:
            main([*self._first, *map(str, words)])
        except SystemExit as left:
            status = left.code or 0
        said = self._captured.readouterr()
        return status, said.out, said.err

    def done(self, *words: str | Path) -> str:
        status, out, err = self(*words)
        assert status == 0, err
        return out

    def refused(self, *words: str | Path) -> str:
        status, out, err = self(*words)
        assert status == 2, out + err
        assert err.startswith("madrigal: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err
