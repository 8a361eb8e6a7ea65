"""The same sentences by other synthesisers and by a run of ours, judged alike, in one table.

Word error rate by two recognisers, predicted naturalness, processor seconds for a second of speech on one thread, and
the size of the models. The sentences are those of a manifest, whose recordings are judged beside the voices.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "corpora"))

import numpy as np
import soundfile
import soxr
from rich.progress import Progress, track

RATE = 24_000
RECORDING = "Recording"
Speak = Callable[[str], np.ndarray]


class Voice(NamedTuple):
    """`speak` makes mono audio [samples] at `rate` of a text; `size` is what its models weigh in MB."""

    rate: int
    speak: Speak
    size: float


def hibari(cache: Path, seed: int) -> Voice:
    """hibari-tts, the voice "heart": what our corpus is spoken by."""
    import hibari_heart
    from corpus import optional

    voice = hibari_heart.heart(seed)
    place = Path(str(optional("hibari", "pip install hibari-tts").__file__)).parent
    return Voice(voice.rate, voice.speak, megabytes(place / "assets"))


def kokoro(cache: Path, seed: int, name: str = "af_heart") -> Voice:
    """Kokoro-82M in full precision."""
    import kokoro as driver
    from packages import npm_package

    model, folder = driver.load_model(cache, seed), npm_package("kokoro-js", "1.2.1", cache) / "voices"
    size = megabytes(cache / "kokoro-fp32.onnx") + megabytes(folder / f"{name}.bin")
    return Voice(driver.RATE, driver.speaking(model, name, folder), size)


def piper(cache: Path, seed: int) -> Voice:
    """Piper, the voice "joe"."""
    import piper_joe

    voice = piper_joe.joe(seed)
    return Voice(voice.rate, voice.speak, megabytes(voice.model))


def espeak(cache: Path, seed: int) -> Voice:
    """espeak-ng, American English; its size is that of its library and of the data of one language."""
    import espeak as driver
    from packages import debian_package

    places = [debian_package(name, cache) for name in ("libespeak-ng1", "espeak-ng-data")]
    ends = ("so.*", "phon*", "intonations", "en_dict")
    files = [file for place in places for end in ends for file in place.rglob(f"*{end}")]
    return Voice(driver.RATE, partial(driver.speak, cache=cache), sum(map(megabytes, files)))


def ours(run: Path, voice: str | None, seed: int, options: dict[str, Any]) -> Voice:
    """A voicebox: a run, an exported folder, or a shipped voice."""
    from madrigal.voicebox.loading import load_voicebox, weight_of

    model = load_voicebox(run)
    prompt = model.voice(voice)

    def speak(text: str) -> np.ndarray:
        return np.asarray(model.say(text, voice=prompt, seed=seed, **options).wave.cpu().numpy())

    return Voice(model.sample_rate, speak, weight_of(run, model))


OTHERS: dict[str, Callable[[Path, int], Voice]] = {
    "hibari": hibari,
    "kokoro": kokoro,
    "piper": piper,
    "espeak-ng": espeak,
}


def megabytes(place: Path) -> float:
    """Of a file, or of all files in a folder; a link weighs nothing."""
    files = [place] if place.is_file() else place.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink()) / 1e6


def spoken(voice: Voice, texts: Sequence[str], label: str) -> tuple[list[np.ndarray], list[float]]:
    """Every text said: waves [1, samples] at the common rate, and processor seconds."""
    from madrigal.judge.speed import FIRST_WORDS, Stopwatch

    voice.speak(FIRST_WORDS)
    waves, seconds = [], []
    for text in track(texts, label):
        with Stopwatch() as watch:
            wave = np.asarray(voice.speak(text), dtype=np.float32)
        waves.append(np.asarray(soxr.resample(wave, voice.rate, RATE), dtype=np.float32)[None])
        seconds.append(watch.seconds)
    return waves, seconds


def compare(voices: dict[str, Callable[[], Voice]], data: Path, limit: int, out: Path) -> str:
    """Judge all voices on the sentences of a manifest; writes a report, the waves and the table, which is returned."""
    from madrigal.data.audio import read
    from madrigal.data.manifest import Manifest
    from madrigal.judge.naturalness import find_naturalness
    from madrigal.judge.recognisers import find_recognisers
    from madrigal.judge.speech_page import write_spoken
    from madrigal.judge.spoken import Sentence, evaluate_spoken

    manifest = Manifest.load(data)
    entries = distinct([entry for entry in manifest if entry.text])[:limit]
    if not entries:
        raise SystemExit(f"None of the recordings of {data} has a text.")
    texts = [entry.text or "" for entry in entries]
    made: dict[str, list[np.ndarray]] = {}
    spent: dict[str, list[float]] = {}
    sizes: dict[str, float] = {}
    for label, load in voices.items():
        voice = load()
        made[label], spent[label] = spoken(voice, texts, label)
        sizes[label] = voice.size
        for number, wave in enumerate(made[label]):
            place = out / label / f"{number:03d}.wav"
            place.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(place, np.clip(wave[0], -1.0, 1.0), RATE)
    made[RECORDING] = [read(manifest.resolve(entry), sample_rate=RATE, channels=1).numpy() for entry in entries]
    items = [
        Sentence(
            name=f"{number:03d}",
            text=text,
            rate=RATE,
            waves={label: waves[number] for label, waves in made.items()},
            spent={label: seconds[number] for label, seconds in spent.items()},
        )
        for number, text in enumerate(texts)
    ]
    with Progress() as bar:
        task = bar.add_task("judging")
        report = evaluate_spoken(
            items,
            recognisers=find_recognisers(),
            listener=find_naturalness(),
            megabytes=sizes,
            title=f"Voices on {len(items)} sentences",
            notes=["Processor seconds are those of one thread, without the time to load.", *synthetic(entries)],
            examples=5,
            progress=lambda done, total, what: bar.update(task, completed=done, total=total),
        )
    write_spoken(report, out)
    table = markdown(report)
    (out / "table.md").write_text(table, encoding="utf-8")
    return table


def distinct(entries: Sequence[Any]) -> list[Any]:
    """The first recording of every text, so that no sentence counts twice."""
    return list({entry.text: entry for entry in reversed(entries)}.values())[::-1]


def synthetic(entries: Sequence[Any]) -> list[str]:
    """Whoever reads the table must know where its recordings come from."""
    speakers = sorted({entry.speaker for entry in entries if getattr(entry, "synthetic", False) and entry.speaker})
    return [f"The recordings are synthetic speech, by {', '.join(speakers)}."] if speakers else []


def markdown(report: Any) -> str:
    """The table: a row for each voice, half of the 95 % interval behind each figure."""
    names = report.recognisers
    rows = [["", *(f"WER %, {name}" for name in names), "DistillMOS", "real-time factor, one core", "MB"]]
    rows.append(["---"] * len(rows[0]))
    for way in report.ways:
        words = [told(errors.words, 100.0, 1) for errors in way.errors]
        size = "" if way.megabytes is None else f"{way.megabytes:.1f}"
        rows.append([way.label, *words, told(way.naturalness, 1.0, 2), told(way.real_time, 1.0, 3), size])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def told(estimate: Any, scale: float, digits: int) -> str:
    """A mean and its interval, or nothing."""
    if estimate is None:
        return ""
    half = "" if estimate.half_width is None else f" ± {estimate.half_width * scale:.{digits}f}"
    return f"{estimate.mean * scale:.{digits}f}{half}"


def main() -> None:
    """Read the command line, compare, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example:\n  python scripts/compare_voices.py --data corpora/voicebox/test --run runs/voice --out out",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="a manifest with texts")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where report, table and waves go")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="a run of ours, or an exported folder")
    parser.add_argument("--voice", metavar="NAME", help="the voice of the run: a name or an audio file")
    parser.add_argument("--steps", type=int, metavar="N", help="intervals of the run's solver")
    parser.add_argument(
        "--voices", default=",".join(OTHERS), metavar="NAMES", help="the others, with commas (default: %(default)s)"
    )
    parser.add_argument("--limit", type=int, default=100, metavar="N", help="sentences at the most (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of every choice (default: 0)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "madrigal" / "corpora",
        metavar="FOLDER",
        help="where downloaded packages are kept (default: %(default)s)",
    )
    args = parser.parse_args()
    names = [name for name in args.voices.split(",") if name]
    if unknown := [name for name in names if name not in OTHERS]:
        raise SystemExit(f"There is no voice {unknown[0]!r}; there is {', '.join(OTHERS)}.")
    import torch

    torch.set_num_threads(1)
    options = {} if args.steps is None else {"steps": args.steps}
    voices: dict[str, Callable[[], Voice]] = {}
    if args.run is not None:
        voices[args.run.name] = partial(ours, args.run, args.voice, args.seed, options)
    voices |= {name: partial(OTHERS[name], args.cache, args.seed) for name in names}
    print(compare(voices, args.data, args.limit, args.out))


if __name__ == "__main__":
    # Before anything starts threads of its own.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
