"""Judging speech from text: what recognisers hear of it, beside the ceiling of its acoustic stages and recordings."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from madrigal.audiolm.draws import Draws, Samplings, drawn_with
from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import manifest_of
from madrigal.engine.machine import prepare_process
from madrigal.errors import UserError
from madrigal.judge.curves import curves_of_parts
from madrigal.judge.naturalness import find_naturalness
from madrigal.judge.recognisers import find_recognisers
from madrigal.judge.speakers import find_speaker_judges
from madrigal.judge.speech_page import write_spoken
from madrigal.judge.spoken import CEILING, RECORDING, SPOKEN, Sentence, SpokenReport, evaluate_spoken
from madrigal.speaking.speech import piece_seed
from madrigal.speartts.loading import load_text_to_speech
from madrigal.speartts.speech import PROMPT_SECONDS, TextToSpeech, drawing
from madrigal.tokenizers.repeats import unique_consecutive
from madrigal.tokenizers.text import shortened

Progress = Callable[..., None]
CURVES = {"pretrain": "speech", "read": "text", "speak": "speech", "coarse": "coarse", "fine": "fine"}
"""The loss of each part that is drawn in the report."""


def sentences(
    model: TextToSpeech,
    manifest: Manifest,
    entries: Sequence[Entry],
    *,
    voice: Path | None,
    ceiling: bool = True,
    sampling: Samplings = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> list[Sentence]:
    """Each recording's text said by the model, its own tokens said by the acoustic stages, and itself.

    Without the `ceiling`, which takes as long as the model's own speech, the second of these is left out.
    """
    prompt = model.voice(voice)
    how = drawing(sampling)
    names = names_of([manifest.resolve(entry) for entry in entries])
    made: list[Sentence] = []
    for first in range(0, len(entries), batch_size):
        batch = entries[first : first + batch_size]
        seeds = list(range(seed + first, seed + first + len(batch)))
        spoken = model([entry.text or "" for entry in batch], voice=prompt, sampling=sampling, seed=seeds)
        heard = [read(manifest.resolve(entry), sample_rate=model.sample_rate, channels=1) for entry in batch]
        own = [_tokens(model, manifest.resolve(entry)) for entry in batch] if ceiling else []
        with torch.no_grad():
            draws = Draws([piece_seed(each, 0) for each in seeds], {**how})
            best = (
                [{CEILING: _numpy(wave)} for wave in model.acoustic_of(own, prompt, draws)]
                if own
                else [{}] * len(batch)
            )
        for entry, said, at_best, wave in zip(batch, spoken, best, heard, strict=True):
            made.append(
                Sentence(
                    name=names[len(made)],
                    text=entry.text or "",
                    rate=model.sample_rate,
                    waves={SPOKEN: _numpy(said.wave), **at_best, RECORDING: _numpy(wave)},
                    confidence=said.confidence,
                    unknown=said.unknown,
                )
            )
        if progress is not None:
            progress(len(made), len(entries))
    return made


def names_of(files: Sequence[Path]) -> list[str]:
    """Short names that tell files apart: their stems, behind the folders that they do not share."""
    whole = [Path(os.path.normpath(file.absolute())) for file in files]
    shared = os.path.commonpath([file.parent for file in whole]) if whole else ""
    short = [file.relative_to(shared) for file in whole]
    bare = [file.with_suffix("").as_posix() for file in short]
    return bare if len(set(bare)) == len(bare) else [file.as_posix() for file in short]


def sayable(model: TextToSpeech, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The recordings whose texts the model can say, and a sentence on the others, if there are any."""
    kept, left_out = [], []
    for entry in entries:
        try:
            model.script(entry.text or "")
        except UserError:
            left_out.append(entry)
        else:
            kept.append(entry)
    if not left_out:
        return kept, []
    few = ", ".join(f"{entry.path} ({shortened(entry.text or '')!r})" for entry in left_out[:3])
    more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return kept, [f"{len(left_out)} of {len(entries)} texts cannot be said at all and were left out: {few}{more}."]


def _tokens(model: TextToSpeech, path: Path) -> Tensor:
    """The semantic ids [time] of a recording, as the model would make them of its text."""
    tokenizer = model.wav2vec
    wave = read(path, sample_rate=tokenizer.target_sample_hz, channels=1).to(model.coarse_transformer.device)
    ids, lengths = tokenizer.tokenize(wave)
    if model.text_to_semantic.config.unique_consecutive:
        ids, lengths = unique_consecutive(ids, lengths)
    return ids[0, : int(lengths[0])]


def _numpy(wave: Tensor) -> object:
    return (wave if wave.ndim == 2 else wave[None]).cpu().numpy()


def evaluate_speech(
    run: Path,
    *,
    data: Path,
    voice: Path | None = None,
    out: Path | None = None,
    limit: int = 100,
    ceiling: bool = True,
    sampling: Samplings = None,
    seed: int = 0,
    recogniser: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[SpokenReport, Path]:
    """Judge a speartts run on recordings with texts that it has not seen; writes the report to a folder."""
    prepare_process()
    model = load_text_to_speech([run], device=device)
    folder = out or run / "evaluation"
    manifest = manifest_of(data, folder / "data", anew=True)
    entries = [entry for entry in manifest if entry.text][:limit]
    if not entries:
        raise UserError(f"None of the recordings of {data} has a text; put a .txt file beside each.")
    entries, notes = sayable(model, entries)
    if not entries:
        raise UserError(f"The model cannot say any text of {data}: {notes[0]}")
    made = sentences(
        model, manifest, entries, voice=voice, ceiling=ceiling, sampling=sampling, seed=seed, progress=progress
    )
    rate = model.sample_rate
    prompt = None if voice is None else read(voice, sample_rate=rate, channels=1)[:, : round(PROMPT_SECONDS * rate)]
    report = evaluate_spoken(
        made,
        recognisers=find_recognisers(recogniser),
        judges=[] if prompt is None else find_speaker_judges(),
        prompt=None if prompt is None else prompt.numpy(),
        listener=find_naturalness(),
        title=f"{run.name} on {len(made)} sentences",
        notes=[drawn_with(drawing(sampling), seed), *notes],
        examples=8,
        progress=progress,
    )
    write_spoken(report, folder, curves_of_parts(run, CURVES))
    return report, folder
