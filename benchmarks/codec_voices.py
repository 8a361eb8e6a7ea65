"""How much of a voice is left after a codec: similarity of the second half of a recording to the first, by ECAPA.

    python benchmarks/codec_voices.py speech-16k:6 speech-16k:12 runs/mels:4 --data corpora/audiolm-long/test

A codec is a shipped name, a run or a folder; behind a colon stands the number of codebooks that are kept. The first
half is heard as it was recorded, and compared with the second half of the same recording and of another speaker's.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.judge.speakers import SpeakerJudge
from madrigal.tokenizers.loading import load_codec

Heard = Callable[[torch.Tensor], torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("codecs", nargs="+", metavar="CODEC[:CODEBOOKS]")
    parser.add_argument("--data", type=Path, required=True, help="recordings of two speakers or more")
    parser.add_argument("--seconds", type=float, default=6, help="of each recording; shorter ones are left out")
    parser.add_argument("--each", type=int, default=12, help="recordings of each speaker")
    given = parser.parse_args()
    judge, rate = SpeakerJudge("ecapa"), 16_000
    manifest = Manifest.load(given.data)
    entries = chosen(manifest, given.seconds, given.each)
    frames = round(given.seconds * rate)
    waves = torch.stack([read(manifest.resolve(e), frames=frames, sample_rate=rate, channels=1) for e in entries])
    speakers = [entry.speaker for entry in entries]
    print(f"{len(entries)} recordings of {len(set(speakers))} speakers: alike to their own first half, and to others'")
    for name, heard in [("recording", lambda wave: wave), *((name, through(name, rate)) for name in given.codecs)]:
        own, other = similarities(judge, waves, heard(waves), speakers, rate)
        print(f"{name:<32} {own:.2f} {other:.2f}", flush=True)


def chosen(manifest: Manifest, seconds: float, each: int) -> list[Entry]:
    """The first long recordings of each speaker."""
    long = [entry for entry in manifest if entry.duration > seconds]
    speakers = dict.fromkeys(entry.speaker for entry in long)
    if len(speakers) < 2:
        raise SystemExit("Voices are compared with each other: there must be two speakers or more.")
    return [entry for who in speakers for entry in [e for e in long if e.speaker == who][:each]]


def through(name: str, rate: int) -> Heard:
    """Waves [batch, 1, samples] as a codec gives them back."""
    folder, _, codebooks = name.partition(":")
    codec = load_codec(folder)
    if codec.target_sample_hz != rate:
        raise SystemExit(f"{folder} hears {codec.target_sample_hz} Hz; this compares codecs of {rate} Hz.")

    @torch.no_grad()
    def heard(waves: torch.Tensor) -> torch.Tensor:
        codes = codec.tokenize(waves)
        return codec.decode_from_codebook_indices(codes[..., : int(codebooks) if codebooks else None])

    return heard


def similarities(
    judge: SpeakerJudge, before: torch.Tensor, after: torch.Tensor, speakers: list[str | None], rate: int
) -> tuple[float, float]:
    """Means of all pairs of a recording with itself, and of all pairs of two speakers."""
    half = before.shape[-1] // 2
    halves = before[..., :half], after[..., half:]
    first, second = (np.stack([judge.embed(wave.numpy(), rate) for wave in waves]) for waves in halves)
    alike = first @ second.T
    is_other = np.array([[a != b for b in speakers] for a in speakers])
    return float(alike.diagonal().mean()), float(alike[is_other].mean())


if __name__ == "__main__":
    main()
