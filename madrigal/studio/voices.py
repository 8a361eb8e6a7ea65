"""Voices by name: those that a model brings, and those that were uploaded, which lie in the studio's folder."""

import os
import re
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madrigal.studio.errors import ApiError, shown
from madrigal.studio.models import Model
from madrigal.voicebox.voice import ENDING, Voice

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
DEFAULT = "default"


@dataclass(frozen=True)
class Listed:
    """A voice that can be asked for."""

    id: str
    model: str
    file: Path
    uploaded: bool
    default: bool

    def row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.id,
            "model": self.model,
            "default": self.default,
            "uploaded": self.uploaded,
        }


class Voices:
    """The voices of all models. Uploaded ones are files, so that other processes of the same studio see them too."""

    def __init__(self, folder: Path, at_most: int) -> None:
        self._folder, self._at_most = folder / "voices", at_most
        self._lock = threading.Lock()

    def listed(self, model: Model) -> list[Listed]:
        own = model.voices()
        found = [Listed(name, model.id, file, False, number == 0) for number, (name, file) in enumerate(own.items())]
        uploaded = [
            Listed(name, model.id, file, True, not own and number == 0)
            for number, (name, file) in enumerate(self._uploaded(model).items())
            if name not in own
        ]
        return found + uploaded

    def find(self, model: Model, name: str) -> Listed | None:
        """The voice of this name; None for the default of a model that has no voice, and speaks all the same."""
        known = self.listed(model)
        for voice in known:
            if voice.id == name or (name == DEFAULT and voice.default):
                return voice
        if name == DEFAULT and not known:
            return None
        there = ", ".join([*(voice.id for voice in known[:30]), DEFAULT])
        raise ApiError(
            400, f"There is no voice {shown(name)}; there is {there}.", code="voice_not_found", param="voice"
        )

    def check_new(self, model: Model, name: str) -> None:
        """Before a recording is worked on."""
        if not NAME.fullmatch(name) or name == DEFAULT:
            raise ApiError(
                400,
                "A voice's name has small letters, digits and hyphens, 41 at the most, and is not 'default'.",
                code="invalid_name",
                param="name",
            )
        if any(voice.id == name for voice in self.listed(model)):
            raise ApiError(409, f"There is a voice {name} already.", code="voice_exists", param="name")
        if len(self._uploaded(model)) >= self._at_most:
            raise ApiError(
                409, f"{self._at_most} voices were uploaded; remove some first.", code="too_many_voices", param="name"
            )

    def add(self, model: Model, name: str, voice: Voice) -> Listed:
        with self._lock:
            self.check_new(model, name)
            file = self._place(model) / f"{name}{ENDING}"
            try:
                self._store(voice, file)
            except FileExistsError as error:
                raise ApiError(409, f"There is a voice {name} already.", code="voice_exists", param="name") from error
            except OSError as error:
                raise ApiError(503, "The voice could not be stored.", code="storage_failed") from error
        return Listed(name, model.id, file, True, False)

    def remove(self, model: Model, name: str) -> None:
        file = self._uploaded(model).get(name)
        if file is None:
            raise ApiError(404, f"There is no uploaded voice {shown(name)}.", code="voice_not_found", param="voice")
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise ApiError(503, "The voice could not be removed.", code="storage_failed") from error

    def _store(self, voice: Voice, file: Path) -> None:
        """Whole or not at all, and never over a voice that another process has stored in the same instant."""
        partial = file.with_name(f".{secrets.token_hex(8)}")
        try:
            voice.save(partial)
            os.link(partial, file)
        finally:
            partial.unlink(missing_ok=True)

    def _place(self, model: Model) -> Path:
        return self._folder / model.id.replace("/", "--")

    def _uploaded(self, model: Model) -> dict[str, Path]:
        try:
            entries = sorted(os.scandir(self._place(model)), key=lambda entry: entry.name)
        except OSError:
            return {}
        files = {entry.name.removesuffix(ENDING): Path(entry.path) for entry in entries if entry.name.endswith(ENDING)}
        return {name: file for name, file in files.items() if NAME.fullmatch(name)}
