"""The command as a test calls it: in this process, with what it said and the status that it left with."""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

from madrigal.cli import main

RECIPE = "soundstream/tiny"
# On top of the tiny recipe: a tenth of a second for a whole training.
QUICK = (
    "model.spectral_dim=16",
    "model.spectral_depth=1",
    "model.codebook_dim=16",
    "model.codebook_size=16",
    "model.rq_num_quantizers=3",
    "model.multi_spectral_window_powers_of_two=[8]",
    "model.discr_spectrogram_channels=2",
    "data.max_length_seconds=0.2",
    "plan.num_train_steps=4",
    "plan.save_model_every=2",
    "plan.save_results_every=4",
    "plan.discr_start_step=1",
    "plan.warmup_steps=0",
    "plan.num_samples=1",
)
# 16 kHz by a hop of 320, codebooks of 16: one, two and three of them.
RATES = ("0.2", "0.4", "0.6")
# What is in the workshop: a trained codec, and its checkpoints.
CODEC = ("--codec", "runs/codec", "--kbps", RATES[1])
NEWEST, BEFORE = Path("runs/codec/checkpoints/step-00000004"), Path("runs/codec/checkpoints/step-00000002")


@dataclass(frozen=True)
class Said:
    """Status, standard output and standard error of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def madrigal(*arguments: str | Path) -> Said:
    """Run the command in this process; what is no mistake of the user comes out as the exception that it is."""
    status: Any = 0
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as left:
            status = left.code or 0
    return Said(status, out.getvalue(), err.getvalue())


def done(*arguments: str | Path) -> Said:
    """Run a command that has to succeed."""
    said = madrigal(*arguments)
    assert said.status == 0, said.err
    assert "madrigal: " not in said.err
    return said


def train(*overrides: str, data: str | Path = "recordings", run: str = "runs/new", options: str = "") -> list[str]:
    """The words of a quick training."""
    return ["train", RECIPE, f"data={data}", *QUICK, *overrides, "--run", run, *options.split()]


def refused(*arguments: str | Path, leaves: tuple[str, ...] = (), run: Callable[..., Said] = madrigal) -> str:
    """Run a command that has to fail as a user's mistake does, and give its one sentence.

    Everything in the working folder is still there, bit for bit, and what is new begins with one of `leaves`.
    """
    before = contents(".")
    said = run(*arguments)
    after = contents(".")
    assert said.status == 2, f"status {said.status}: {said.out}{said.err}"
    lines = said.err.splitlines()
    sentences = [line for line in lines if line.startswith("madrigal: ")]
    assert sentences == lines[-1:], said.err
    if arguments[0] != "train":  # which also tells what it does
        assert len(lines) == 1, said.err
    sentence = lines[-1].removeprefix("madrigal: ")
    assert "Traceback" not in said.err + said.out
    assert "Errno" not in sentence
    assert len(sentence) > 20, sentence
    assert sentence[-1] in ".?", sentence
    changed = {path for path, content in before.items() if after.get(path) != content}
    assert not changed, f"{changed} lost by: {sentence}"
    made = {path for path in after.keys() - before.keys() if not path.startswith(leaves or "\0")}
    assert not made, f"{made} left behind by: {sentence}"
    return sentence


def contents(folder: str | Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    found = sorted(Path(folder).rglob("*"))
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in found}


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: to those who write it looks like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def on_full_disk(size: int = 0) -> Callable[..., Said]:
    """`madrigal`, where only `size` bytes can be written to a file."""

    def run(*arguments: str | Path) -> Said:
        with room_for(size):
            return madrigal(*arguments)

    return run


class PlainUser:
    """`madrigal` for somebody whom permissions stop: a process in which root has given up its privilege."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, *arguments: str | Path) -> Said:
        if os.geteuid() != 0:
            return madrigal(*arguments)
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        stdin.write(json.dumps([os.getcwd(), *map(str, arguments)]) + "\n")
        stdin.flush()
        return Said(**json.loads(stdout.readline()))

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()

    @staticmethod
    def serve() -> None:
        """The other end: a line with a folder and a command comes in, a line with what was said goes out."""
        _obey_permissions()
        for line in sys.stdin:
            folder, *arguments = json.loads(line)
            os.chdir(folder)
            try:
                said = madrigal(*arguments)
            except Exception:
                said = Said(1, "", traceback.format_exc())
            print(json.dumps(asdict(said)), flush=True)


def _obey_permissions() -> None:
    """Give up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, for good: capset(2), version 3 of its structures."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for index in range(3):
        sets[index] &= ~0b110
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    PlainUser.serve()
