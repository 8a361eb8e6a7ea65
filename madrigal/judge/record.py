"""What verdicts are made of: frozen records, and reports that are written as JSON and read again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from madrigal.errors import UserError


class Record(BaseModel):
    """Something that was found, as it is kept: nothing may change, nothing unknown may be in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SavedReport(Record):
    """A report with a format and a version of its own, which are its first two fields and never change."""

    of_what: ClassVar[str] = "an evaluation"
    format: str
    version: int

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON, beside first and then renamed, so that a reader never sees half of it."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        beside.write_text(self.to_json() + "\n", encoding="utf-8")
        beside.replace(target)
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `write` wrote."""
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"The report {path} cannot be read ({error}): evaluate again.") from error
        expected = {name: cls.model_fields[name].default for name in ("format", "version")}
        if not isinstance(content, dict) or content.get("format") != expected["format"]:
            raise UserError(f"{path} is not the report of {cls.of_what}: give the JSON that `madrigal evaluate` wrote.")
        if content.get("version") != expected["version"]:
            raise UserError(
                f"The report {path} has version {content.get('version')}, "
                f"this program reads {expected['version']}: evaluate again."
            )
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise UserError(f"The report {path} is damaged ({error.error_count()} fields): evaluate again.") from error
