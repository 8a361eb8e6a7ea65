"""Short tunes from a small grammar: a key, a chord progression, and a melody, chords or broken chords over it.

A note falls on every beat, whatever the texture is, so the tempo can be heard in the onsets; strong beats take notes of
the chord, so the mode can be heard in a melody alone.
"""

import random
from dataclasses import asdict, dataclass
from itertools import product

INSTRUMENTS = {
    "piano": 0,
    "music box": 10,
    "xylophone": 13,
    "church organ": 19,
    "acoustic guitar": 24,
    "violin": 40,
    "choir": 52,
    "trumpet": 56,
    "saxophone": 65,
    "flute": 73,
}
"""The instruments and their programs of General MIDI, counted from 0."""

TEMPOS = {"slow": (56.0, 66.0), "medium": (98.0, 112.0), "fast": (168.0, 188.0)}
"""Beats in a minute, from and to."""

REGISTERS = {"low": 45, "middle": 60, "high": 76}
"""The lowest tonic as a MIDI pitch; the tonic is up to seven semitones higher."""

SCALES = {"major": (0, 2, 4, 5, 7, 9, 11), "minor": (0, 2, 3, 5, 7, 8, 10)}
PROGRESSIONS = {
    "major": ((0, 4, 5, 3), (0, 3, 4, 0), (0, 5, 3, 4), (0, 3, 0, 4)),
    "minor": ((0, 5, 6, 0), (0, 3, 4, 0), (0, 6, 5, 6), (0, 3, 0, 4)),
}
"""Degrees of the scale on which the chords stand, two beats each."""

TEXTURES = ("melody", "block chords", "broken chords")
KEYS = ("C", "C sharp", "D", "E flat", "E", "F", "F sharp", "G", "A flat", "A", "B flat", "B")


@dataclass(frozen=True)
class Attributes:
    """What a caption can say of a tune; each is true by construction."""

    instrument: str
    tempo: str
    mode: str
    register: str
    texture: str

    @property
    def combination(self) -> tuple[str, str, str]:
        """What is held out of training as a whole: instrument, tempo and mode."""
        return self.instrument, self.tempo, self.mode

    def as_row(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Note:
    """A note in seconds and MIDI's numbers."""

    start: float
    seconds: float
    pitch: int
    velocity: int


@dataclass(frozen=True)
class Tune:
    """Notes in time, and the two numbers that a caption only names: beats in a minute and key."""

    notes: tuple[Note, ...]
    beats_per_minute: float
    key: str


def combinations() -> list[tuple[str, str, str]]:
    """Every combination of instrument, tempo and mode."""
    return list(product(INSTRUMENTS, TEMPOS, SCALES))


def held_out() -> set[tuple[str, str, str]]:
    """One combination of each instrument; together they have every tempo and both modes."""
    tempos, modes = list(TEMPOS), list(SCALES)
    return {(name, tempos[i % 3], modes[i % 2]) for i, name in enumerate(INSTRUMENTS)}


def draw_attributes(combination: tuple[str, str, str], rng: random.Random) -> Attributes:
    """A combination with a register and a texture."""
    return Attributes(*combination, register=rng.choice(list(REGISTERS)), texture=rng.choice(TEXTURES))


def compose(attributes: Attributes, seconds: float, rng: random.Random) -> Tune:
    """A tune of these attributes that lasts for `seconds`."""
    tonic = REGISTERS[attributes.register] + rng.randrange(8)
    bpm = round(rng.uniform(*TEMPOS[attributes.tempo]), 1)
    beat, start = 60 / bpm, rng.uniform(0.0, 0.08)
    chords = rng.choice(PROGRESSIONS[attributes.mode])
    scale = SCALES[attributes.mode]
    degree, notes = rng.choice((0, 2, 4)), []
    for number in range(int((seconds - start) / beat) + 1):
        chord = chords[(number // 2) % len(chords)]
        velocity = (104 if number % 4 == 0 else 88) + rng.randrange(-6, 7)
        at = start + number * beat
        if attributes.texture == "block chords":
            played = [(at, 0.95 * beat, chord + step) for step in (0, 2, 4)]
        elif attributes.texture == "broken chords":
            played = [(at, 2.5 * beat, chord + (0, 4, 2, 7)[number % 4])]
        else:
            degree = _next_degree(degree, chord, number % 2 == 0, rng)
            played = [(at, 0.95 * beat, degree)]
        notes += [Note(at, lasts, tonic + _pitch(scale, step), velocity) for at, lasts, step in played]
    return Tune(tuple(notes), bpm, KEYS[tonic % 12])


def _next_degree(degree: int, chord: int, strong: bool, rng: random.Random) -> int:
    """The next degree of a melody: near by, and a note of the chord on a strong beat."""
    near = [degree + step for step in (-2, -1, 1, 2) if -2 <= degree + step <= 8]
    if strong:
        of_chord = [d for d in range(-2, 9) if (d - chord) % 7 in (0, 2, 4) and d != degree]
        distance = min(abs(d - degree) for d in of_chord)
        near = [d for d in of_chord if abs(d - degree) <= distance + 1]
    return rng.choice(near)


def _pitch(scale: tuple[int, ...], degree: int) -> int:
    """Semitones above the tonic of a degree of the scale, which may lie in another octave."""
    octave, step = divmod(degree, len(scale))
    return 12 * octave + scale[step]
