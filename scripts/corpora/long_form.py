"""Recordings long enough to be gone on with: the utterances of each speaker, joined with short pauses.

A continuation model that has only heard single sentences learns that speech stops after one. Utterances are taken in
a shuffled order and joined until a recording is SECONDS long; the rest of a speaker makes a shorter one.
With --speeds and --resonances each recording is spoken by a body of its own (bodies.py): a few speakers then
sound like many, and a model cannot learn them by heart. --breath lets some of the recordings be breathed rather than
voiced, for there are such speakers too. --copies makes several recordings of each group, each by a body of its own, and
--most-minutes keeps speakers of whom there is much from drowning the others.
"""

import math
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile
from bodies import Body, Span
from corpus import MANIFEST, CorpusWriter, Row, arguments, read_manifest

PAUSE = (0.2, 0.4)
AS_IT_IS = (1.0, 1.0)


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


def at_most(groups: list[list[Row]], seconds: float) -> list[list[Row]]:
    """The groups of each speaker up to so many seconds in all."""
    heard: dict[str, float] = defaultdict(float)
    kept = []
    for group in groups:
        speaker = group[0]["speaker"]
        if heard[speaker] < seconds:
            kept.append(group)
            heard[speaker] += sum(row["duration"] for row in group)
    return kept


def build(
    manifest: Path,
    out: Path,
    seconds: float,
    seed: int,
    speeds: Span = AS_IT_IS,
    *,
    resonances: Span = AS_IT_IS,
    breath: float = 0.0,
    copies: int = 1,
    most_minutes: float = math.inf,
) -> None:
    """Write the joined recordings of a manifest's utterances into `out`, each by a body that is drawn for it.

    A share `breath` of the recordings is more or less breathed. A group becomes as many recordings as its speaker needs
    to reach `most_minutes`, at the most `copies`.
    """
    groups = at_most(grouped(read_manifest(manifest), seconds, seed), 60 * most_minutes)
    lengths: dict[str, float] = defaultdict(float)
    for group in groups:
        lengths[group[0]["speaker"]] += sum(row["duration"] for row in group)
    with CorpusWriter(out, licence="", synthetic=False) as writer:
        for number, group in enumerate(groups):
            speaker = group[0]["speaker"]
            wave, rate = joined(group, manifest.parent, f"{seed}/{number}")
            needed = copies if most_minutes == math.inf else math.ceil(60 * most_minutes / lengths[speaker])
            for copy in range(min(copies, needed)):
                name = f"{seed}/speed/{number}" + (f"/{copy}" if copy else "")
                chance = random.Random(name)
                spoken = Body.drawn(chance, speeds, resonances, breath).speaks(wave, rate, name)
                text = " ".join(row["text"] for row in group)
                writer.add(f"{speaker}/{number:05d}" + (f"-{copy}" if copy else ""), spoken, rate, text, speaker)
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
        default=AS_IT_IS,
        metavar=("LOW", "HIGH"),
        help="play each recording at a speed between these, such as 0.84 1.19 (default: as recorded)",
    )
    parser.add_argument(
        "--resonances",
        type=float,
        nargs=2,
        default=AS_IT_IS,
        metavar=("LOW", "HIGH"),
        help="move each recording's resonances by a factor between these, and its pitch not (default: as recorded)",
    )
    parser.add_argument("--copies", type=int, default=1, metavar="N", help="recordings of a group (default: 1)")
    parser.add_argument(
        "--most-minutes", type=float, default=math.inf, metavar="M", help="of a speaker, copies not counted"
    )
    parser.add_argument(
        "--breath", type=float, default=0.0, metavar="SHARE", help="of the recordings, to be breathed (default: none)"
    )
    args = parser.parse_args()
    if not 0 <= args.breath <= 1:
        parser.error("--breath is a share, from 0 to 1.")
    if args.copies < 1 or args.most_minutes <= 0:
        parser.error("--copies is a number from 1 on, and --most-minutes one over 0.")
    for name in ("speeds", "resonances"):
        low, high = getattr(args, name)
        if not 0.5 <= low <= high <= 2:
            parser.error(f"--{name} are two numbers between 0.5 and 2, the lower first.")
    build(
        args.manifest,
        args.out,
        args.seconds,
        args.seed,
        args.speeds,
        resonances=args.resonances,
        breath=args.breath,
        copies=args.copies,
        most_minutes=args.most_minutes,
    )


if __name__ == "__main__":
    main()
