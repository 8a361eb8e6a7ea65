"""SYNTHETIC music with captions that are true by construction, for the recipe `musiclm/cpu`.

OUT/train              3,000 tunes of five seconds at 16 kHz
OUT/valid              200 more
OUT/test-pairs         500 more; no tune of a set before it has their notes on the same instrument, none their captions
OUT/test-combinations  200 such tunes of combinations of instrument, tempo and mode that no other set has

The tunes come from a grammar, the sounds from the soundfont TimGM6mb (Debian, GPL-2), which TinySoundFont plays (PyPI,
MIT). Each row has a caption as its text (a full one in the tests), others in `captions`, and the attributes that they
are made of.
Needs: pip install --no-deps tinysoundfont
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from corpus import CorpusWriter, arguments, optional, resample
from music_captions import captions
from music_tunes import INSTRUMENTS, Attributes, Tune, combinations, compose, draw_attributes, held_out
from packages import debian_package

LICENCE = "GPL-2 (sounds of TimGM6mb)"
SETS = {"train": 3000, "valid": 200, "test-pairs": 500, "test-combinations": 200}
RATE = 16_000
SECONDS = 5.0
LEVEL = 0.1
"""Root mean square that every clip is brought to: loudness must not tell instruments apart."""


class Soundfont:
    """A soundfont that plays tunes; it renders at twice the rate, for it does not filter what it transposes."""

    def __init__(self, path: Path, rate: int = RATE) -> None:
        self.rate = rate
        self.synth: Any = optional("tinysoundfont", "pip install --no-deps tinysoundfont").Synth(samplerate=2 * rate)
        self.font = self.synth.sfload(str(path))

    def play(self, tune: Tune, program: int, seconds: float) -> np.ndarray:
        """Mono audio [samples] of exactly `seconds`, with a short fade at its end."""
        self.synth.sounds_off()
        self._sound(self.rate // 5)  # what the tune before it sounded for dies away in here
        self.synth.program_select(0, self.font, 0, program)
        played, at = [], 0
        for sample, pitch, velocity in self._events(tune, seconds):
            played.append(self._sound(sample - at))
            at = sample
            if velocity:
                self.synth.noteon(0, pitch, velocity)
            else:
                self.synth.noteoff(0, pitch)
        total = round(seconds * self.rate)
        played.append(self._sound(2 * total - at))
        return _levelled(resample(np.concatenate(played), 2 * self.rate, self.rate)[:total], self.rate)

    def _events(self, tune: Tune, seconds: float) -> list[tuple[int, int, int]]:
        """(sample, pitch, velocity) in order; a note's end has velocity 0 and comes before what begins there."""
        rate, events = 2 * self.rate, []
        for note in tune.notes:
            events.append((round(note.start * rate), note.pitch, note.velocity))
            events.append((round((note.start + note.seconds) * rate), note.pitch, 0))
        return sorted((e for e in events if e[0] < round(seconds * rate)), key=lambda e: (e[0], e[2] > 0, e[1]))

    def _sound(self, samples: int) -> np.ndarray:
        if samples <= 0:
            return np.zeros(0, dtype=np.float32)
        stereo = np.frombuffer(bytes(self.synth.generate_simple(samples)), dtype=np.float32)
        return stereo.reshape(-1, 2).mean(1)


def _levelled(audio: np.ndarray, rate: int) -> np.ndarray:
    """Audio at the level that all clips have, faded out over its last 50 ms."""
    audio = audio * (LEVEL / max(float(np.sqrt(np.mean(audio**2))), 1e-6))
    audio = audio * min(1.0, 0.95 / max(float(np.abs(audio).max()), 1e-6))
    fade = np.ones(len(audio), dtype=np.float32)
    last = min(rate // 20, len(audio))
    fade[len(audio) - last :] = np.linspace(1.0, 0.0, last)
    return (audio * fade).astype(np.float32)


class Known:
    """What the sets so far have: tunes, how they begin on which instrument, and captions."""

    OPENING = 8
    """Notes by which a tune is known again, however fast and loud it is played."""

    def __init__(self) -> None:
        self.tunes: set[Tune] = set()
        self.openings: set[tuple[str, tuple[int, ...]]] = set()
        self.captions: set[str] = set()

    def opening(self, attributes: Attributes, tune: Tune) -> tuple[str, tuple[int, ...]]:
        return attributes.instrument, tuple(note.pitch for note in tune.notes[: self.OPENING])

    def has_heard(self, attributes: Attributes, tune: Tune, texts: list[str]) -> bool:
        """Whether a test would ask for what training has met."""
        return self.opening(attributes, tune) in self.openings or texts[0] in self.captions

    def add(self, attributes: Attributes, tune: Tune, texts: list[str]) -> None:
        self.tunes.add(tune)
        self.openings.add(self.opening(attributes, tune))
        self.captions.update(texts)


def drawn(
    name: str, count: int, seed: int, seconds: float, known: Known
) -> Iterator[tuple[Attributes, Tune, list[str]]]:
    """The tunes of one set with their captions: the combinations in turn, all else by chance, none that is known."""
    rng = random.Random(f"{seed}/{name}")
    unseen = held_out()
    allowed = [c for c in combinations() if (c in unseen) == (name == "test-combinations")]
    for number in range(count):
        if number % len(allowed) == 0:
            rng.shuffle(allowed)
        attributes = draw_attributes(allowed[number % len(allowed)], rng)
        tune = compose(attributes, seconds, rng)
        while tune in known.tunes:
            tune = compose(attributes, seconds, rng)
        texts = captions(attributes, rng)
        while name.startswith("test") and known.has_heard(attributes, tune, texts):
            attributes = draw_attributes(allowed[number % len(allowed)], rng)
            tune = compose(attributes, seconds, rng)
            texts = captions(attributes, rng)
        known.add(attributes, tune, texts)
        yield attributes, tune, texts


def build_set(out: Path, name: str, count: int, seed: int, seconds: float, font: Soundfont, known: Known) -> None:
    """Write one set. A test is asked with full captions; training also hears of a tune in few words."""
    rng = random.Random(f"{seed}/{name}/texts")
    with CorpusWriter(out / name, LICENCE, synthetic=True) as writer:
        for number, (attributes, tune, texts) in enumerate(drawn(name, count, seed, seconds, known)):
            audio = font.play(tune, INSTRUMENTS[attributes.instrument], seconds)
            text = texts[0] if name.startswith("test") else rng.choice(texts)
            writer.add(f"{number:05d}", audio, font.rate, text, attributes.instrument)
            writer.rows[-1] |= {
                "captions": texts,
                **attributes.as_row(),
                "beats_per_minute": tune.beats_per_minute,
                "key": f"{tune.key} {attributes.mode}",
            }


def build(out: Path, cache: Path, seed: int, sets: dict[str, int], seconds: float, rate: int = RATE) -> None:
    """Write the sets, each with tunes that no set before it has."""
    path = debian_package("timgm6mb-soundfont", cache) / "usr/share/sounds/sf2/TimGM6mb.sf2"
    font = Soundfont(path, rate)
    known = Known()
    for name, count in sets.items():
        build_set(out, name, count, seed, seconds, font, known)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/music_renders.py --out corpora/music --seed 0")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="of a tune (default: 5)")
    parser.add_argument("--sample-rate", type=int, default=RATE, metavar="HZ", help="of the files (default: 16000)")
    parser.add_argument("--clips", type=int, default=SETS["train"], metavar="N", help="for training (default: 3000)")
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, {**SETS, "train": args.clips}, args.seconds, args.sample_rate)


if __name__ == "__main__":
    main()
