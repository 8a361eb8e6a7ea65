"""The multi-speaker corpus of the `audiolm/cpu` recipe: 16 kHz mono speech, most of it SYNTHETIC.

OUT/test holds the last two of fourteen Kokoro voices; OUT/train holds the other twelve, blends of those twelve, blends
of all that Kokoro has but the test's, and the other parts of codec_speech.py. Neither the test's speakers nor its
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
MINUTES = 46.7
KOKORO = f"kokoro{VOICES}"
# A dozen voices are learned by heart; that a voice is to be taken from the prompt is learned from many.
BLENDS, BLEND_MINUTES = 60, 25
# Twelve seconds of each are enough to be continued; in parts, each of which takes minutes and is built once.
PARTS_OF_MANY, MANY, MANY_MINUTES = 6, 40, 8


def part_builders(cache: Path, seed: int) -> dict[str, Callable[[Path], None]]:
    """What builds each part, quickest first."""
    parts = training_parts(cache, seed, without=())
    del parts["kokoro"]  # fourteen voices take the place of its twelve, which are among them
    spoken = partial(kokoro.build, cache=cache, seed=seed, sample_rate=RATE)
    many = {f"kokoro-many-{n}": partial(_many, cache=cache, seed=seed, number=n) for n in range(1, PARTS_OF_MANY + 1)}
    return {
        **parts,
        "kokoro-blends": partial(spoken, voices=VOICES - HELD_OUT, blends=BLENDS, minutes=BLEND_MINUTES),
        **many,
        KOKORO: partial(spoken, voices=VOICES, minutes=MINUTES),
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


def divide(kokoro_rows: list[Row], other_rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """(train, test): the last voices are the test, and training loses every clip that says one of its sentences."""
    voices = list(dict.fromkeys(row["speaker"] for row in kokoro_rows))
    held_out = set(voices[-HELD_OUT:])
    test = [row for row in kokoro_rows if row["speaker"] in held_out]
    sentences = {normalise(row["text"]) for row in test}
    spoken = [*other_rows, *(row for row in kokoro_rows if row["speaker"] not in held_out)]
    train = [row for row in spoken if normalise(row["text"]) not in sentences]
    check_held_out(train, test)
    return train, test


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
    others = [row for part, folder in folders.items() if part != KOKORO for row in rows_from(out / "train", folder)]
    train, test = divide(rows_from(out / "train", folders[KOKORO]), others)
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
