"""Voices to be named: for every speaker of a manifest a recording that was aligned well and is of a good length."""

import re
from collections.abc import Sequence
from pathlib import Path

import torch

from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.tokenizers.mel_features import Features
from madrigal.voicebox.alignments import AnyAlignments
from madrigal.voicebox.parts import PROMPT_SECONDS
from madrigal.voicebox.voice import ENDING, Voice

NOBODY = "voice"
"""The name of a speaker who has none."""
CANDIDATES = 200
"""Recordings of a speaker that are looked at."""


def write_voices(
    folder: Path,
    manifest: Manifest,
    alignments: AnyAlignments,
    features: Features,
    *,
    silence: int,
    most: int = 32,
) -> list[str]:
    """Write a voice for each of the first speakers, those who speak longest first; their names."""
    speakers: dict[str, list[Entry]] = {}
    for entry in manifest:
        if entry.path in alignments:
            speakers.setdefault(entry.speaker or NOBODY, []).append(entry)
    spoken = {name: sum(entry.duration for entry in own) for name, own in speakers.items()}
    ranked = sorted(speakers, key=lambda name: (-spoken[name], name))
    names: list[str] = []
    for speaker in ranked[:most]:
        entry = _best(speakers[speaker][:CANDIDATES], alignments)
        wave = read(manifest.resolve(entry), sample_rate=features.sample_rate, channels=1)
        symbols, durations = alignments.row(entry.path)
        heard = features.encode(wave.to(features.mean.device))[0].cpu()[: int(durations.sum())]
        if len(heard) < int(durations.sum()):  # a lossy file that came out shorter than it promised
            heard = torch.cat((heard, heard[-1:].expand(int(durations.sum()) - len(heard), -1)))
        about = {"speaker": speaker, "text": entry.text or "", "licence": entry.licence or "", "recording": entry.path}
        about["seconds"] = f"{spoken[speaker]:.2f}"
        voice = Voice(heard, features.fingerprint(), symbols, durations, about)
        names.append(_file_name(speaker, names))
        voice.first(round(PROMPT_SECONDS * features.frame_rate), silence).save(folder / f"{names[-1]}{ENDING}")
    return names


def _best(entries: Sequence[Entry], alignments: AnyAlignments) -> Entry:
    """The surest alignment among recordings that fill a prompt; else the longest recording."""
    enough = [entry for entry in entries if PROMPT_SECONDS <= entry.duration <= 4 * PROMPT_SECONDS]
    if not enough:
        return max(entries, key=lambda entry: (entry.duration, entry.path))
    return max(enough, key=lambda entry: (alignments.confidence(entry.path), entry.path))


def _file_name(speaker: str, taken: Sequence[str]) -> str:
    """A name for a file, unlike those that are there."""
    plain = re.sub(r"[^\w.\-]+", "-", speaker).strip("-.") or NOBODY
    return (
        plain
        if plain not in taken
        else next(f"{plain}-{n}" for n in range(2, len(taken) + 3) if f"{plain}-{n}" not in taken)
    )
