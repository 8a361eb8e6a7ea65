"""The multi-speaker corpus of the `audiolm/cpu` recipe: 16 kHz mono speech, most of it SYNTHETIC.

OUT/test holds the last two of fourteen Kokoro voices; OUT/train holds the other twelve, blends of all that Kokoro has
but the test's, and the other parts of codec_speech.py. Neither the test's speakers nor its
sentences are in the training set: clips that say one are left out. The manifests point to the parts, which are taken
from `--parts` where they are finished there, or built in OUT/parts.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import kokoro
from codec_speech import RATE, check_held_out, training_parts
from corpus import MANIFEST, Row, arguments, read_manifest, write_manifest
from sentences import normalise

VOICES, HELD_OUT = 14, 2
MINUTES, TEST_MINUTES = 24, 8
TEST = "kokoro-test"
# A dozen voices are learned by heart; that a voice is to be taken from the prompt is learned from many. Twelve seconds
# of each are enough to be continued; in parts, each of which takes minutes and is built once.
PARTS_OF_MANY, MANY, MANY_MINUTES = 3, 40, 8


def part_builders(cache: Path, seed: int) -> dict[str, Callable[[Path], None]]:
    """What builds each part, quickest first."""
    parts = training_parts(cache, seed, without=())
    del parts["kokoro"]  # less of the same twelve voices is enough: there are many more
    spoken = partial(kokoro.build, cache=cache, seed=seed, sample_rate=RATE)
    many = {f"kokoro-many-{n}": partial(_many, cache=cache, seed=seed, number=n) for n in range(1, PARTS_OF_MANY + 1)}
    return {
        **parts,
        TEST: partial(spoken, voices=VOICES, after=VOICES - HELD_OUT, minutes=TEST_MINUTES),
        "kokoro-voices": partial(spoken, voices=VOICES - HELD_OUT, minutes=MINUTES),
        **many,
    }


def _many(out: Path, cache: Path, seed: int, number: int) -> None:
    but = kokoro.choose_voices(kokoro.voices_folder(cache), VOICES, seed)[-HELD_OUT:]
    others = {"blends": MANY, "minutes": MANY_MINUTES, "but": but}
    kokoro.build(out, cache, seed + 100 + number, voices=0, sample_rate=RATE, **others)


def finished(part: str, folders: Iterable[Path]) -> Path | None:
    """The first folder that holds a part which was built to its end."""
    return next((folder / part for folder in folders if (folder / part / MANIFEST).is_file()), None)


def rows_from(out: Path, part: Path) -> list[Row]:
    """The rows of a part, with paths that start from `out`."""
    start = os.path.relpath(part.resolve(), out.resolve())
    return [{**row, "path": Path(start, row["path"]).as_posix()} for row in read_manifest(part / MANIFEST)]


def without_sentences_of(test: list[Row], rows: list[Row]) -> list[Row]:
    """What may be trained on: every clip that says a sentence of the test is left out."""
    sentences = {normalise(row["text"]) for row in test}
    train = [row for row in rows if normalise(row["text"]) not in sentences]
    check_held_out(train, test)
    return train


def write_set(out: Path, rows: list[Row]) -> None:
    """Write the manifest of one set and say what is in it."""
    write_manifest(out / MANIFEST, rows)
    speakers, hours = {row["speaker"] for row in rows}, sum(row["duration"] for row in rows) / 3600
    print(f"{out}: {len(rows)} clips, {len(speakers)} speakers, {hours:.2f} h", flush=True)


def build(out: Path, cache: Path, seed: int, parts: Sequence[Path] = ()) -> None:
    """Build what is missing of the parts, and write both manifests."""
    folders: dict[str, Path] = {}
    for part, make in part_builders(cache, seed).items():
        found = finished(part, [*parts, out / "parts"])
        if found is None:
            found = out / "parts" / part
            make(found)
        folders[part] = found
    for name in ("train", "test"):
        (out / name).mkdir(parents=True, exist_ok=True)
    test = rows_from(out / "train", folders.pop(TEST))
    train = without_sentences_of(test, [row for folder in folders.values() for row in rows_from(out / "train", folder)])
    # Both sets lie at the same depth, so that the same relative paths lead to the parts.
    write_set(out / "train", train)
    write_set(out / "test", test)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/audiolm_speech.py --out corpora/audiolm --seed 0")
    parser.add_argument(
        "--parts",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="where finished parts may be found, such as corpora/codec-speech/train; may be given several times",
    )
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.parts)


if __name__ == "__main__":
    main()
