"""The training set and the test set of the `soundstream/cpu` recipe: 16 kHz mono speech.

FOLDER/test holds 100 real English prompts of one speaker; neither their sentences nor their speaker are in
FOLDER/train, which is real Russian and French speech and SYNTHETIC English speech. The manifest of train
grows with every part that is finished, the slowest part being last; parts that exist are not built again.
"""

import random
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import asterisk
import festvox_ru
import flite
import hibari_heart
import kokoro
import piper_joe
from corpus import MANIFEST, Row, arguments, read_manifest, write_manifest
from sentences import normalise

RATE = 16_000
TEST_CLIPS, TEST_WORDS = 100, 4
# Longer than a window of a recogniser, one announcement would weigh as much as thirty prompts.
SHORTEST, LONGEST = 1.5, 20.0


def testable(row: Row) -> bool:
    """Whether an utterance is long enough to be judged, and its transcript says every word that is spoken."""
    words = normalise(row["text"]).split()
    return len(words) >= TEST_WORDS and SHORTEST <= row["duration"] <= LONGEST and not set("<>[]*#") & set(row["text"])


def choose_test(rows: list[Row], seed: int) -> list[Row]:
    """A seeded choice of testable utterances, no two with the same words, in the order of their paths."""
    by_text = {normalise(row["text"]): row for row in rows if testable(row)}
    chosen = random.Random(seed).sample(list(by_text.values()), TEST_CLIPS)
    return sorted(chosen, key=lambda row: row["path"])


def build_test(out: Path, cache: Path, seed: int) -> list[Row]:
    """Build all English prompts, keep the chosen hundred, and return their rows."""
    manifest = out / MANIFEST
    if not manifest.is_file():
        asterisk.build(out / "asterisk-en", cache, "en", RATE)
        rows = read_manifest(out / "asterisk-en" / MANIFEST)
        chosen = choose_test(rows, seed)
        kept = {row["path"] for row in chosen}
        for row in rows:
            if row["path"] not in kept:
                (out / "asterisk-en" / row["path"]).unlink()
        (out / "asterisk-en" / MANIFEST).unlink()
        write_manifest(manifest, ({**row, "path": f"asterisk-en/{row['path']}"} for row in chosen))
    return read_manifest(manifest)


def training_parts(cache: Path, seed: int, without: Collection[str]) -> dict[str, Callable[[Path], None]]:
    """What builds each part of the training set, quickest first."""
    spoken: dict[str, Any] = {"cache": cache, "seed": seed, "sample_rate": RATE, "without": without}
    return {
        "festvox-ru": partial(festvox_ru.build, cache=cache, sample_rate=RATE),
        "asterisk-fr": partial(asterisk.build, cache=cache, language="fr", sample_rate=RATE),
        "asterisk-ru": partial(asterisk.build, cache=cache, language="ru", sample_rate=RATE),
        "hibari": partial(hibari_heart.build, minutes=60, **spoken),
        "piper-joe": partial(piper_joe.build, minutes=15, **spoken),
        "flite": partial(flite.build, minutes=10, **spoken),
        "kokoro": partial(kokoro.build, voices=12, minutes=40, **spoken),
    }


def check_held_out(train: list[Row], test: list[Row]) -> None:
    """Refuse a training set that shares a speaker or a sentence with the test set."""
    shared = {row["speaker"] for row in train} & {row["speaker"] for row in test}
    shared |= {normalise(row["text"]) for row in train} & {normalise(row["text"]) for row in test}
    if shared:
        raise ValueError(f"Speakers or sentences of the test set are in the training set: {sorted(shared)}.")


def merge(out: Path, parts: Collection[str], test: list[Row]) -> None:
    """Write the manifest of all finished parts, after a check that nothing of the test set is in it."""
    rows = [
        {**row, "path": f"{part}/{row['path']}"}
        for part in parts
        if (out / part / MANIFEST).is_file()
        for row in read_manifest(out / part / MANIFEST)
    ]
    check_held_out(rows, test)
    write_manifest(out / MANIFEST, rows)


def main() -> None:
    """Read the command line, then build the test set and every part of the training set."""
    parser = arguments(__doc__, "python scripts/corpora/codec_speech.py --out corpora/codec-speech --seed 0")
    args = parser.parse_args()
    test = build_test(args.out / "test", args.cache, args.seed)
    parts = training_parts(args.cache, args.seed, {normalise(row["text"]) for row in test})
    for part, build in parts.items():
        folder = args.out / "train" / part
        if not (folder / MANIFEST).is_file():
            build(folder)
        merge(args.out / "train", parts, test)


if __name__ == "__main__":
    main()
