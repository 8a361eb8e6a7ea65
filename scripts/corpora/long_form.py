"""Recordings long enough to be gone on with: the utterances of each speaker, joined with short pauses.

A continuation model that has only heard single sentences learns that speech stops after one. Utterances are taken in
a shuffled order and joined until a recording is SECONDS long; the rest of a speaker makes a shorter one.
With --speeds each recording is played at a speed of its own, which moves pitch and formants as another body would:
a few speakers then sound like many, and a model cannot learn them by heart.
"""

import math
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile
from corpus import MANIFEST, CorpusWriter, Row, arguments, read_manifest, resample

PAUSE = (0.2, 0.4)


def grouped(rows: list[Row], seconds: float, seed: int) -> list[list[Row]]:
    """The rows of each speaker in shuffled order, cut into groups of at least `seconds`."""
    speakers: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        speakers[row["speaker"]].append(row)
    groups: list[list[Row]] = []
    for speaker, own in sorted(speakers.items()):
        random.Random(f"{seed}/{speaker}").shuffle(own)
        group: list[Row] = []
        for row in own:
            group.append(row)
            if sum(r["duration"] for r in group) >= seconds:
                groups.append(group)
                group = []
        if group:
            groups.append(group)
    return groups


def joined(group: list[Row], root: Path, seed: str) -> tuple[np.ndarray, int]:
    """One wave [samples] of a group's utterances, and its rate."""
    chance = random.Random(seed)
    parts: list[np.ndarray] = []
    rate = group[0]["sample_rate"]
    for row in group:
        audio, found = soundfile.read(root / row["path"], dtype="float32")
        if found != rate:
            raise SystemExit(f"{row['path']} has another sample rate than the recordings it is joined to.")
        parts += [np.zeros(round(rate * chance.uniform(*PAUSE)), np.float32)] * bool(parts) + [audio]
    return np.concatenate(parts), rate


def spoken_at(wave: np.ndarray, rate: int, speed: float) -> np.ndarray:
    """A wave [samples] as if its recording were played `speed` times as fast."""
    return resample(wave, round(rate * speed), rate)


def build(manifest: Path, out: Path, seconds: float, seed: int, speeds: tuple[float, float] = (1.0, 1.0)) -> None:
    """Write the joined recordings of a manifest's utterances into `out`, each at a speed drawn from `speeds`."""
    rows = read_manifest(manifest)
    low, high = (math.log(speed) for speed in speeds)
    with CorpusWriter(out, licence="", synthetic=False) as writer:
        for number, group in enumerate(grouped(rows, seconds, seed)):
            wave, rate = joined(group, manifest.parent, f"{seed}/{number}")
            wave = spoken_at(wave, rate, math.exp(random.Random(f"{seed}/speed/{number}").uniform(low, high)))
            text = " ".join(row["text"] for row in group)
            speaker = group[0]["speaker"]
            writer.add(f"{speaker}/{number:05d}", wave, rate, text, speaker)
            writer.rows[-1] |= {key: group[0][key] for key in ("licence", "synthetic") if key in group[0]}


def main() -> None:
    """Read the command line and join."""
    parser = arguments(
        __doc__, f"python scripts/corpora/long_form.py corpora/audiolm/train/{MANIFEST} --out corpora/long"
    )
    parser.add_argument("manifest", type=Path, help="the manifest of the utterances")
    parser.add_argument("--seconds", type=float, default=12, metavar="S", help="length to reach (default: 12)")
    parser.add_argument(
        "--speeds",
        type=float,
        nargs=2,
        default=(1.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="play each recording at a speed between these, such as 0.84 1.19 (default: as recorded)",
    )
    args = parser.parse_args()
    if not 0.5 <= args.speeds[0] <= args.speeds[1] <= 2:
        parser.error("--speeds are two numbers between 0.5 and 2, the lower first.")
    build(args.manifest, args.out, args.seconds, args.seed, args.speeds)


if __name__ == "__main__":
    main()
