"""English sentences for the synthesisers to speak: the usage examples of WordNet 3.0."""

import random
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from corpus import CorpusWriter
from packages import debian_package
from rich.progress import Progress

EXAMPLE = re.compile(r'"([^"]+)"')
SPEAKABLE = re.compile(r"[A-Za-z][A-Za-z' ,;:-]*[A-Za-z]")
# WordNet marks the senses that one would not read aloud to a stranger; their examples are left out.
MARKED = re.compile(r"\b(slur|offensive|obscene|vulgar|derogatory|disparaging|slang|sexual|intercourse)\b")
# An example without any of these is nearly always a bare noun phrase ("the nascent chicks").
FINITE = re.compile(
    r"\b(I|he|she|it|we|you|they|there|who|what|this|that|is|are|was|were|has|have|had|will|would|can|could|must"
    r"|should|may|might|do|does|did|don't|doesn't|didn't|let|please)\b",
    re.IGNORECASE,
)


def normalise(text: str) -> str:
    """Text as a key for comparison: lower-case words only."""
    return " ".join(re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower()))


def wordnet_sentences(cache: Path, shortest: int = 4, longest: int = 25) -> list[str]:
    """Every usage example that reads as a sentence of `shortest` to `longest` words, without repeats."""
    folder = debian_package("wordnet-base", cache) / "usr" / "share" / "wordnet"
    found: dict[str, str] = {}
    for part in ("adj", "adv", "noun", "verb"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            _, _, gloss = line.partition(" | ")
            if MARKED.search(gloss):
                continue
            for example in EXAMPLE.findall(gloss):
                text = " ".join(example.split()).rstrip(" ;,.")
                words = text.split(" ")
                if shortest <= len(words) <= longest and SPEAKABLE.fullmatch(text) and FINITE.search(text):
                    found.setdefault(normalise(text), text[0].upper() + text[1:] + ".")
    return list(found.values())


def chosen_sentences(cache: Path, key: str, without: Collection[str] = ()) -> list[str]:
    """All sentences whose normal form is not in `without`, in an order that depends on `key` alone."""
    held_out = set(without)
    sentences = [text for text in wordnet_sentences(cache) if normalise(text) not in held_out]
    random.Random(key).shuffle(sentences)
    return sentences


def speak_for(
    minutes: float,
    sentences: list[str],
    speaker: str,
    rate: int,
    speak: Callable[[str], np.ndarray],
    writer: CorpusWriter,
) -> None:
    """Let `speak` (text to mono audio [samples] at `rate`) read sentences until it spoke for `minutes`."""
    spoken, wanted = 0.0, minutes * 60
    with Progress() as progress:
        task = progress.add_task(speaker, total=wanted)
        for number, text in enumerate(sentences):
            if spoken >= wanted:
                return
            spoken += writer.add(f"{speaker}/{number:05d}", speak(text), rate, text, speaker)
            progress.update(task, completed=min(spoken, wanted))
    if spoken < wanted:
        raise SystemExit(f"WordNet ran out of sentences after {spoken / 60:.0f} of {minutes:.0f} minutes.")
