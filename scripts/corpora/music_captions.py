"""Captions of a tune in several phrasings: every one of them is true, and the full ones name every attribute."""

import random

from music_tunes import Attributes

NAMES = {
    "piano": ("piano",),
    "music box": ("music box",),
    "xylophone": ("xylophone",),
    "church organ": ("church organ", "organ"),
    "acoustic guitar": ("acoustic guitar", "guitar"),
    "violin": ("violin",),
    "choir": ("choir", "choir of voices"),
    "trumpet": ("trumpet",),
    "saxophone": ("saxophone", "sax"),
    "flute": ("flute",),
}
TEMPO_WORDS = {
    "slow": ("slow", "unhurried", "very slow"),
    "medium": ("medium-paced", "moderate", "steady"),
    "fast": ("fast", "quick", "rapid"),
}
MOOD_WORDS = {
    "major": ("happy", "cheerful", "joyful", "bright"),
    "minor": ("sad", "melancholy", "gloomy", "sorrowful"),
}
REGISTER_WORDS = {
    "low": ("in a low register", "with low, deep notes", "down low"),
    "middle": ("in the middle register", "with notes in the middle range"),
    "high": ("in a high register", "with high notes", "up high"),
}
TEXTURE_WORDS = {
    "melody": ("a single melody line", "a melody alone", "one note at a time"),
    "block chords": ("block chords", "full chords on every beat"),
    "broken chords": ("broken chords", "arpeggios"),
}

FULL = (
    "{article} {tempo} {mood} {instrument} piece in a {mode} key, {texture} {register}",
    "{texture} {register} on {article_instrument} {instrument}, {tempo} and {mood}, in a {mode} key",
    "{article_instrument} {instrument} plays {tempo}, {mood} music in {mode}: {texture}, {register}",
    "{mood} {mode} music for {instrument}, {tempo}, {register}, {texture}",
)
SHORT = (
    "{article} {tempo} {mood} {instrument} piece in a {mode} key",
    "{mood} {instrument} music, {tempo}",
    "{article} {tempo} {instrument} tune {register}",
    "{instrument}, {texture}, {mood}",
)


def caption(attributes: Attributes, rng: random.Random, full: bool) -> str:
    """One caption in one of the phrasings; a full one names every attribute."""
    words = {
        "instrument": rng.choice(NAMES[attributes.instrument]),
        "tempo": rng.choice(TEMPO_WORDS[attributes.tempo]),
        "mood": rng.choice(MOOD_WORDS[attributes.mode]),
        "mode": attributes.mode,
        "register": rng.choice(REGISTER_WORDS[attributes.register]),
        "texture": rng.choice(TEXTURE_WORDS[attributes.texture]),
    }
    words |= {"article": _article(words["tempo"]), "article_instrument": _article(words["instrument"])}
    return rng.choice(FULL if full else SHORT).format(**words)


def captions(attributes: Attributes, rng: random.Random, count: int = 4) -> list[str]:
    """Different captions of one tune: the first is full, and every second after it."""
    found: list[str] = []
    while len(found) < count:
        text = caption(attributes, rng, full=len(found) % 2 == 0)
        if text not in found:
            found.append(text)
    return found


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
