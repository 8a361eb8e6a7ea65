"""A second opinion on words: a Kaldi recogniser through Vosk, which shares neither method nor data with Whisper."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.recognition import RATE
from madrigal.judge.signals import mono, resample

VARIABLE = "MADRIGAL_SECOND_RECOGNISER"
CHUNK = RATE // 4


def find_second_recogniser() -> Path | None:
    """The folder of a Vosk model that MADRIGAL_SECOND_RECOGNISER names; None where it names nothing."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


class VoskRecogniser:
    """Vosk with a model from a local folder; a `Transcriber` like `Recogniser`."""

    def __init__(self, model_folder: str | os.PathLike[str]) -> None:
        self.folder = Path(model_folder)
        if not any(self.folder.rglob("final.mdl")):
            raise UserError(f"There is no final.mdl in {self.folder}: give the folder of a Vosk model.")
        self._module = packages.load("vosk")
        self._module.SetLogLevel(-1)
        try:
            self._model = self._module.Model(str(self.folder))
        except Exception as error:  # Vosk raises the bare class
            raise UserError(f"The Vosk model in {self.folder} does not load ({error}): unpack it again.") from error

    def transcribe(self, wave: Any, rate: int) -> str:
        """[channels, samples] -> what was heard."""
        sound = np.clip(resample(mono(wave)[None], rate, RATE)[0], -1.0, 1.0)
        content = (sound * 32767).astype("<i2")
        recogniser = self._module.KaldiRecognizer(self._model, float(RATE))
        heard = []
        for start in range(0, len(content), CHUNK):
            if recogniser.AcceptWaveform(content[start : start + CHUNK].tobytes()):
                heard.append(json.loads(recogniser.Result())["text"])
        heard.append(json.loads(recogniser.FinalResult())["text"])
        return " ".join(text for text in heard if text)
