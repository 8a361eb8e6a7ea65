"""Alignments as Praat's TextGrid, so that a person can look at them beside the sound."""

from collections.abc import Sequence
from pathlib import Path

from madrigal.data.manifest import Entry
from madrigal.voicebox.alignments import AlignmentInfo, Timed
from madrigal.voicebox.symbols import Symbols

Interval = tuple[float, float, str]


def write_textgrids(
    folder: Path, entries: Sequence[Entry], rows: Sequence[Timed], symbols: Symbols, info: AlignmentInfo
) -> list[Path]:
    """One file for each recording, under its own path with the ending .TextGrid."""
    written = []
    for entry, row in zip(entries, rows, strict=True):
        # A path that climbs out of its manifest's folder must not climb out of this one.
        parts = [part for part in Path(entry.path).parts if part not in ("..", "/")]
        file = folder.joinpath(*parts).with_suffix(".TextGrid")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textgrid(row, symbols, info), encoding="utf-8")
        written.append(file)
    return written


def textgrid(row: Timed, symbols: Symbols, info: AlignmentInfo) -> str:
    """The tiers "words" (in symbols, silences empty) and "symbols" of a recording."""
    ends = row.durations.cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    seconds = info.hop / info.sample_rate
    shown = [
        (start * seconds, end * seconds, "" if symbol == symbols.silence else symbols.shown(symbol))
        for start, end, symbol in zip(starts, ends, row.symbols.tolist(), strict=True)
    ]
    words: list[Interval] = []
    last = 0
    for word in symbols.words(row.symbols.tolist()):
        if word.start > last:
            words.append((starts[last] * seconds, starts[word.start] * seconds, ""))
        words.append((starts[word.start] * seconds, ends[word.stop - 1] * seconds, word.text))
        last = word.stop
    if last < len(ends):
        words.append((starts[last] * seconds, ends[-1] * seconds, ""))
    return _file(ends[-1] * seconds, {"words": words, "symbols": shown})


def _file(length: float, tiers: dict[str, list[Interval]]) -> str:
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0", f"xmax = {length:.6f}"]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, intervals) in enumerate(tiers.items(), start=1):
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f'        name = "{name}"']
        lines += ["        xmin = 0", f"        xmax = {length:.6f}", f"        intervals: size = {len(intervals)}"]
        for place, (start, end, text) in enumerate(intervals, start=1):
            quoted = text.replace('"', '""')
            lines += [
                f"        intervals [{place}]:",
                f"            xmin = {start:.6f}",
                f"            xmax = {end:.6f}",
            ]
            lines += [f'            text = "{quoted}"']
    return "\n".join(lines) + "\n"
