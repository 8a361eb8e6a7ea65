"""What the routes of one application share: its settings, models, voices, runs, line of work and figures."""

import logging
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from starlette.requests import Request

from madrigal.errors import UserError
from madrigal.studio.control import Control
from madrigal.studio.errors import ApiError
from madrigal.studio.listening import Listening
from madrigal.studio.models import Models
from madrigal.studio.runs import Runs
from madrigal.studio.settings import StudioSettings
from madrigal.studio.voices import Listed, Voices
from madrigal.studio.watching import Watching
from madrigal.studio.work import WorkLine
from madrigal.voicebox.voice import Voice

log = logging.getLogger("madrigal.studio")


class Studio:
    """One of these belongs to one application."""

    def __init__(self, settings: StudioSettings, loaders: Any = None) -> None:
        limits = settings.limits
        self.settings = settings
        self.watching = Watching()
        self.models = Models(settings, loaders)
        self.voices = Voices(settings.folder, limits.voices)
        self.runs = Runs(settings.folder, control=settings.control)
        self.control = Control(settings, self.runs)
        self.listening = Listening(settings.folder, self.runs)
        self.line = WorkLine(workers=limits.workers, waiting=limits.waiting, timeout=limits.timeout_seconds)
        self._lock = threading.Lock()
        self._prompts: OrderedDict[tuple[Path, float], Voice] = OrderedDict()
        self._recogniser: Any = None
        self.watching.waiting.set_function(lambda: self.line.waiting)
        self.watching.working.set_function(lambda: self.line.working)
        self.watching.models_loaded.set_function(lambda: self.models.in_memory)

    @property
    def is_busy(self) -> bool:
        return bool(self.watching.now_open or self.line.working or self.line.waiting)

    def prompt(self, voice: Listed) -> Voice:
        """A voice from its file; those that were asked for lately are kept."""
        try:
            key = (voice.file, voice.file.stat().st_mtime)
        except OSError as error:
            raise ApiError(400, f"There is no voice {voice.id} any more.", code="voice_not_found") from error
        with self._lock:
            if key not in self._prompts:
                self._prompts[key] = _loaded(voice)
                while len(self._prompts) > 64:
                    self._prompts.popitem(last=False)
            return self._prompts[key]

    def made(self, sound: bytes, model: str, seconds: float) -> bytes:
        """Note what a model has made, and hand it on."""
        self.watching.audio_seconds.labels(model).inc(seconds)
        return sound

    def recogniser(self) -> Any:
        """What writes down what is said, where something is installed that does; found once."""
        if self._recogniser is None:
            from madrigal.judge.recognisers import find_recognisers

            self._recogniser = next(iter(find_recognisers().values()), False)
        return self._recogniser or None

    async def warm_up(self) -> None:
        """Load the default voice and let it speak, so that the first who asks does not wait for it."""

        def speak() -> None:
            model = self.models.find(None, "speech")
            log.info("The voice %s is being loaded; what is to be said waits for it", model.id)
            begin = time.monotonic()
            speaker = self.models.loaded(model)
            voice = self.voices.find(model, "default")
            for text in ("Hello.", "Good morning, how are you?"):
                for _ in speaker.stream(text, voice=None if voice is None else self.prompt(voice), growing=True):
                    pass
            log.info("The voice %s is ready after %.1f seconds", model.id, time.monotonic() - begin)

        try:
            await self.line.once(speak)
        except Exception:
            log.warning("The default voice could not be warmed up", exc_info=True)


def _loaded(voice: Listed) -> Voice:
    try:
        return Voice.load(voice.file)
    except UserError as error:
        # The sentence is for whoever keeps the voices; it names folders.
        raise ApiError(
            503, f"The voice {voice.id} cannot be loaded now.", code="voice_unusable", param="voice"
        ) from error


def studio_of(request: Request) -> Studio:
    return request.app.state.studio
