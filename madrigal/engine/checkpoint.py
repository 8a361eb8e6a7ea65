"""A checkpoint is a folder that either is whole or does not have its name.

    step-00001000/
      model.safetensors      weights and buffers, without frozen parts
      ema.safetensors        their average, where one is kept
      optimizer.safetensors  moments, by turn and parameter name
      config.json            what rebuilds the model
      state.json             step, best so far, scales, version, and the checksum of every other file

It is written beside its place, synced to the disk and renamed, so a process that is killed at any instant
leaves the checkpoints before it as they were.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from madrigal.errors import UserError

STATE = "state.json"
FORMAT = 1


class DamagedCheckpoint(UserError):
    """A checkpoint folder that is not what was written."""


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def write_checkpoint(
    target: Path, tensors: dict[str, dict[str, Tensor]], documents: dict[str, Any], state: dict[str, Any]
) -> Path:
    """Write `tensors` (file stem to named tensors) and `documents` (JSON file name to value) as one whole."""
    partial = target.parent / f".partial-{target.name}-{os.getpid()}"
    replaced = target.with_name(f".removed-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        for stem, named in tensors.items():
            save_file({k: t.detach().cpu().contiguous() for k, t in named.items()}, partial / f"{stem}.safetensors")
        for name, value in documents.items():
            (partial / name).write_text(json.dumps(value, indent=2) + "\n")
        files = {path.name: _checksum(path) for path in sorted(partial.iterdir())}
        whole = {"format": FORMAT, **state, "files": files}
        whole["checksum"] = _own_checksum(whole)
        (partial / STATE).write_text(json.dumps(whole, indent=2) + "\n")
        for path in partial.iterdir():
            # Tensors are written for their owner alone; others may read them where the umask lets them.
            shutil.copymode(partial / STATE, path)
            _sync(path)
        _sync(partial)
        if target.exists():
            # Renamed, not removed: there is only an instant in which neither has the name.
            shutil.rmtree(replaced, ignore_errors=True)
            target.rename(replaced)
        partial.rename(target)
        _sync(target.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        if replaced.exists() and not target.exists():
            replaced.rename(target)
        raise UserError(
            f"The checkpoint {target} could not be written ({error}); "
            "make room or choose another --run folder, then go on with --resume from the last whole checkpoint."
        ) from error
    return target


def read_state(folder: Path) -> dict[str, Any]:
    """`state.json` of a checkpoint whose files all have the checksums that it names."""
    if not folder.is_dir():
        raise DamagedCheckpoint(f"There is no checkpoint folder {folder}; name one such as RUN/checkpoints/step-….")
    try:
        state = json.loads((folder / STATE).read_text())
        files, own = state["files"], state.pop("checksum", None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"The checkpoint {folder} is damaged: its {STATE} cannot be read.") from error
    if state.get("format") != FORMAT:
        raise DamagedCheckpoint(
            f"The checkpoint {folder} has format {state.get('format')}, this version reads {FORMAT}."
        )
    if own is not None and own != _own_checksum(state):
        raise DamagedCheckpoint(f"The checkpoint {folder} is damaged: {STATE} is not what was written.")
    for name, expected in files.items():
        try:
            found = _checksum(folder / name)
        except OSError as error:
            raise DamagedCheckpoint(f"The checkpoint {folder} is damaged: {name} is missing.") from error
        if found != expected:
            raise DamagedCheckpoint(
                f"The checkpoint {folder} is damaged: {name} is not what was written; use an earlier one."
            )
    return dict(state)


def read_tensors(folder: Path, stem: str) -> dict[str, Tensor]:
    """The tensors of one file of a checkpoint; none where the file was not written."""
    path = folder / f"{stem}.safetensors"
    if not path.exists():
        return {}
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise DamagedCheckpoint(f"{path} is damaged ({error}); use an earlier checkpoint.") from error


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def newest_whole(folder: Path, say: Callable[[str], None] = lambda _: None) -> Path | None:
    """The newest checkpoint that is whole; each damaged one that is passed over is named."""
    for candidate in reversed(checkpoints(folder)):
        try:
            read_state(candidate)
        except DamagedCheckpoint as damage:
            say(f"{damage} Going back to the one before it.")
        else:
            return candidate
    return None


def set_aside_after(folder: Path, newest: Path | None) -> None:
    """Rename the damaged checkpoints after `newest`: they must not take the places of whole ones in `prune`."""
    for damaged in checkpoints(folder):
        if newest is not None and damaged.name > newest.name:
            aside = damaged.with_name(f"damaged-{damaged.name}")
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)


def prune(folder: Path, keep: int, best: str | None) -> None:
    """Remove all but the newest `keep` checkpoints and the best one, and what killed writers left behind."""
    for old in checkpoints(folder)[:-keep]:
        if old.name != best:
            # Renamed first: a folder that is being removed must not look like a checkpoint.
            doomed = old.with_name(f".removed-{old.name}")
            old.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
    for leftover in [*folder.glob(".partial-*"), *folder.glob(".removed-*")]:
        shutil.rmtree(leftover, ignore_errors=True)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own_checksum(state: dict[str, Any]) -> str:
    """Of what `state.json` says of itself."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
