"""A run is a folder; everything that shows a run reads this folder and nothing else.

runs/NAME/
  recipe.yaml        resolved: the run can be repeated from it alone
  environment.json   versions and machine
  metrics.jsonl      one line a logged step
  samples/step-…/    things to hear, look at or read
  checkpoints/step-…/
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import yaml

from madrigal.engine.checkpoint import checkpoint_name, checkpoints, read_state
from madrigal.errors import UserError


class RunFolder:
    """The places of a run and the few files that are not checkpoints."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.recipe = self.path / "recipe.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples"

    @property
    def has_checkpoint(self) -> bool:
        return bool(checkpoints(self.checkpoints))

    def open(self, *, resume: bool, overwrite: bool) -> None:
        """Make the folder; a run that is there already is only touched when the user said how."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"The run folder {self.path} is a file; name another one with --run.")
        if overwrite:
            for part in (self.checkpoints, self.samples):
                shutil.rmtree(part, ignore_errors=True)
            for file in (self.metrics, self.recipe):
                file.unlink(missing_ok=True)
        elif self.has_checkpoint and not resume:
            newest = checkpoints(self.checkpoints)[-1].name
            raise UserError(
                f"{self.path} already holds a run at {newest}: add --resume (resume=True) to go on, "
                "--overwrite (overwrite=True) to start over, or name another run."
            )
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK):
                raise PermissionError("it is read-only")
        except OSError as error:
            raise UserError(
                f"The run folder {self.path} cannot be written ({error}); name another one with --run."
            ) from error

    def write_recipe(self, recipe: dict[str, Any], environment: dict[str, Any]) -> None:
        self.recipe.write_text(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
        (self.path / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")

    def log(self, step: int, values: dict[str, float]) -> None:
        """Append one line to `metrics.jsonl`."""
        line = {"step": step, "time": round(time.time(), 3), **values}
        with self.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop the lines of steps that a resumed run is about to take again."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError):
                continue  # the last line of a killed process may be cut short
        partial = self.metrics.with_suffix(".partial")
        partial.write_text("".join(kept))
        partial.replace(self.metrics)

    def checkpoint(self, which: str = "best") -> Path:
        """The folder of the `best` or the `newest` whole checkpoint, or of a step number."""
        found = checkpoints(self.checkpoints)
        if not found:
            raise UserError(f"{self.path} holds no checkpoint; train first, or name another run.")
        if which.isdigit():
            wanted = self.checkpoints / checkpoint_name(int(which))
            if wanted not in found:
                raise UserError(
                    f"{self.path} has no checkpoint of step {which}; it has {', '.join(p.name for p in found)}."
                )
            return wanted
        if which == "best":
            best = read_state(found[-1]).get("best")
            if best and (self.checkpoints / checkpoint_name(best["step"])).exists():
                return self.checkpoints / checkpoint_name(best["step"])
        return found[-1]


def summaries(folder: Path) -> list[dict[str, Any]]:
    """What can be said of each run in `folder` from its files alone."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; name the folder that holds your runs.")
    found = []
    for path in sorted(p.parent for p in folder.glob("*/recipe.yaml")):
        run = RunFolder(path)
        recipe = yaml.safe_load(run.recipe.read_text())
        lines = run.metrics.read_text().splitlines()[-1:] if run.metrics.exists() else []
        last = json.loads(lines[0]) if lines else {"step": 0}
        figures = {k: v for k, v in last.items() if k.startswith("valid/") or k.endswith("loss")}
        found.append(
            {
                "run": str(path),
                "system": recipe["system"],
                "step": last["step"],
                "num_train_steps": recipe["plan"]["num_train_steps"],
                "figures": figures,
            }
        )
    return found
