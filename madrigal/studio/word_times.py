"""When the written words of a text are said: symbols have times, and words have symbols."""

from collections.abc import Sequence
from typing import Any

from madrigal.errors import UserError


def word_times(speaker: Any, sound: Any, text: str) -> list[dict[str, Any]]:
    """The words of `text` in order, with the seconds at which each begins and ends."""
    aligner = speaker.aligner
    wave = sound.mono(speaker.sample_rate).to(speaker.device)
    symbols, durations, _ = aligner.align_text(wave, text)
    spoken = aligner.symbols.words(symbols.tolist())
    ends = durations.cumsum(0).tolist()
    frame = speaker.features.hop / speaker.sample_rate
    written = [word for word in text.split() if any(character.isalnum() for character in word)]
    # The symbols of all words in a row, and how many of them each written word has when it is said alone.
    sounds = [place for span in spoken for place in range(span.start, span.stop)]
    shares = [_length(aligner.symbols, word) for word in written]
    edges = _edges(shares, sounds, [span.stop - span.start for span in spoken])
    found = []
    for word, (first, last) in zip(written, edges, strict=True):
        start = ends[sounds[first]] - int(durations[sounds[first]])
        found.append({"word": word, "start": round(start * frame, 3), "end": round(ends[sounds[last]] * frame, 3)})
    return found


def _length(symbols: Any, word: str) -> int:
    try:
        return max(1, sum(span.stop - span.start for span in symbols.words(symbols.encode(word))))
    except UserError:
        return 1


def _edges(shares: Sequence[int], sounds: Sequence[int], spoken: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last sound of each written word.

    As many are spoken as are written: one for one. Else (joined words, numbers) the sounds are shared out by what each
    word has alone.
    """
    sizes = list(spoken) if len(spoken) == len(shares) else list(shares)
    total, count, before, edges = sum(sizes), len(sounds), 0, []
    for size in sizes:
        first = min(count - 1, before * count // total)
        before += size
        edges.append((first, max(first, min(count, before * count // total) - 1)))
    return edges
