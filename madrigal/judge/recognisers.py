"""Every recogniser that is on this machine."""

from __future__ import annotations

from pathlib import Path

from madrigal.judge import packages
from madrigal.judge.recognition import Recogniser, Transcriber, find_recogniser
from madrigal.judge.vosk import VoskRecogniser, find_second_recogniser


def find_recognisers(folder: Path | None = None) -> dict[str, Transcriber]:
    """By name: Whisper, from `folder` where one is given, and Vosk."""
    found: dict[str, Transcriber] = {}
    whisper, second = folder or find_recogniser(), find_second_recogniser()
    if whisper is not None and packages.available("recogniser"):
        found["Whisper"] = Recogniser(whisper)
    if second is not None and packages.available("vosk"):
        found["Vosk"] = VoskRecogniser(second)
    return found
