"""Judging a voicebox: its speech beside recordings, whose voice it is, how long it takes, and holes that it fills."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import manifest_of
from madrigal.data.turns import in_turn
from madrigal.engine.machine import prepare_process
from madrigal.errors import UserError
from madrigal.judge.cast import Cast
from madrigal.judge.curves import curves_of_parts
from madrigal.judge.estimates import of_mean
from madrigal.judge.gallery import Recording
from madrigal.judge.mending import MendedRecording, evaluate_mending, hole_in, with_hole
from madrigal.judge.naturalness import find_naturalness
from madrigal.judge.recognisers import find_recognisers
from madrigal.judge.speakers import find_speaker_judges
from madrigal.judge.speech_page import write_spoken
from madrigal.judge.speed import FIRST_WORDS, Stopwatch, counted, one_thread
from madrigal.judge.spoken import CEILING, RECORDING, SPOKEN, Sentence, SpokenReport, evaluate_spoken
from madrigal.judge.timing import duration_errors
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.editing import Editor
from madrigal.voicebox.filling import way_of
from madrigal.voicebox.loading import load_voicebox, weight_of
from madrigal.voicebox.mending import Sound
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.voice import Voice

Progress = Callable[..., None]
CURVES = {"aligner": "symbol", "vocoder": "mel", "durations": "loss", "flow": "loss", "student": "loss"}
"""The loss of each part that is drawn in the report."""


GIVEN = "Holes were filled by a model that was given the whole text: its words were not guessed."


class Prompts:
    """Recordings of a manifest as the model hears them, each heard once: waves [1, samples], and voices."""

    def __init__(self, model: VoiceboxSpeech, manifest: Manifest) -> None:
        self.model, self.manifest = model, manifest
        self._voices: dict[str, tuple[Tensor, Voice]] = {}

    def wave(self, entry: Entry) -> Tensor:
        return read(self.manifest.resolve(entry), sample_rate=self.model.sample_rate, channels=1)

    def voice(self, entry: Entry) -> tuple[Tensor, Voice]:
        """A recording to speak like: as much of its wave as the model takes, and the voice."""
        if entry.path not in self._voices:
            wave = self.wave(entry)
            try:
                voice = self.model.voice(wave, text=entry.text)
            except UserError:  # the text does not fit the recording, which can be heard without it
                voice = self.model.voice(wave)
            self._voices[entry.path] = wave[:, : len(voice.features) * self.model.features.hop], voice
        return self._voices[entry.path]


Timing = tuple[np.ndarray, np.ndarray]


class SaidSentence(NamedTuple):
    """A sentence, the calls of the flow's and the durations' network that it took, and durations [symbols]: foretold,
    and of the recording."""

    sentence: Sentence
    evaluations: int
    duration_evaluations: int
    timing: Timing | None


@torch.no_grad()
def sentences(
    model: VoiceboxSpeech,
    recordings: Prompts,
    cast: Cast,
    entries: Sequence[Entry],
    *,
    voice: str | None = None,
    drawing: Drawing,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[SaidSentence]:
    """Each text said like another recording of its speaker (or in `voice`), beside its own recording.

    One by one, as it is measured what they take. The ceiling is the recording's own features, decoded.
    """
    fixed, path = None if voice is None else model.voice(voice), Path(voice or "")
    shown = read(path, sample_rate=model.sample_rate, channels=1).numpy() if voice and path.is_file() else None
    spoken: list[SaidSentence] = []
    model.say(FIRST_WORDS, voice=fixed, **drawing.model_dump())
    flow, lasting, by_clock = model.voicebox.to_flow, model.durations.network.to_flow, model.device.type != "cpu"
    for number, entry in enumerate(entries):
        text, wave = entry.text or "", recordings.wave(entry)
        like = None if fixed is not None else cast.prompt(entry)
        prompt, prompted_by = (shown, fixed) if like is None else recordings.voice(like)
        with counted(flow) as calls, counted(lasting) as timings, Stopwatch(clock=by_clock) as watch:
            said = model.say(text, voice=prompted_by, seed=seed + number, **drawing.model_dump())
        sentence = Sentence(
            name=Path(entry.path).stem if entry.speaker is None else f"{entry.speaker}, {Path(entry.path).stem}",
            text=text,
            rate=model.sample_rate,
            waves={SPOKEN: _numpy(said.wave), CEILING: _numpy(_decoded(model, wave)), RECORDING: wave.numpy()},
            unknown=said.unknown,
            speaker=None if like is None else entry.speaker,
            prompt=prompt,
            spent={SPOKEN: watch.seconds},
        )
        # Only in the recording's own voice should the durations be the recording's.
        timing = None if like is None else _timing(model, wave, text, recordings.voice(like)[1], drawing, seed + number)
        spoken.append(SaidSentence(sentence, len(calls), len(timings), timing))
        if progress is not None:
            progress(len(spoken), len(entries))
    return spoken


def _timing(model: VoiceboxSpeech, wave: Tensor, text: str, voice: Voice, how: Drawing, seed: int) -> Timing | None:
    """Durations that the model foretells, and those of the recording; None where its text does not fit it."""
    try:
        _, heard, _ = model.aligner.align_text(_whole_frames(model, wave)[0].to(model.device), text)
    except UserError:
        return None
    return model.lines([text], voice, seeds=[seed], how=how)[0].durations.numpy(), heard.cpu().numpy()


@torch.no_grad()
def mended_recordings(
    model: VoiceboxSpeech,
    manifest: Manifest,
    entries: Sequence[Entry],
    *,
    count: int,
    hole_seconds: float = 1.0,
    drawing: Drawing,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[list[MendedRecording], list[str]]:
    """The first `count` recordings that are long enough, each with a hole in its speech that the model fills.

    It is given the whole text. Beside them, why some of these could not be mended; no others take their places.
    """
    found: list[MendedRecording] = []
    failed: list[str] = []
    for number, entry in enumerate(entries):
        if len(found) + len(failed) == count:
            break
        wave = read(manifest.resolve(entry), sample_rate=model.sample_rate, channels=1).numpy()
        hole = hole_in(wave, model.sample_rate, hole_seconds, seed + number)
        if hole is None:
            continue
        # The model is given the recording with the hole: of what was there it knows the words alone.
        holed = Sound(with_hole(wave, model.sample_rate, *hole).T, model.sample_rate, "FLOAT")
        try:
            edited = Editor(model, seed=seed + number, drawing=drawing).fill(holed, [hole], transcript=entry.text)
        except UserError as error:
            failed.append(f"{entry.path} could not be mended: {error}")
            continue
        found.append(
            MendedRecording(
                name=f"{Path(entry.path).stem}, mended from {hole[0]:.2f} to {hole[1]:.2f} s",
                text=entry.text or "",
                rate=model.sample_rate,
                original=wave,
                mended=edited.sound.wave().numpy(),
                start=hole[0],
                stop=hole[1],
            )
        )
        if progress is not None:
            progress(len(found), count)
    return found, failed


def evaluate_voicebox(
    run: Path,
    *,
    data: Path,
    voice: str | None = None,
    out: Path | None = None,
    limit: int = 100,
    holes: int = 50,
    hole_seconds: float = 1.0,
    options: dict[str, Any] | None = None,
    seed: int = 0,
    recogniser: Path | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[SpokenReport, Path]:
    """Judge a voicebox on recordings with texts that it has not seen; writes the report to a folder.

    `options` are those of `Drawing` that are to be others than the run's own.
    """
    prepare_process()
    model = load_voicebox(run, device=device)
    drawing = model.drawing.but(**(options or {}))
    # A shipped voice is a name, not a folder to write into.
    folder = out or (run / "evaluation" if run.is_dir() else Path("evaluation") / run.name)
    manifest = manifest_of(data, folder / "data", anew=True)
    entries = in_turn(entry for entry in manifest if entry.text)
    if not entries:
        raise UserError(f"None of the recordings of {data} has a text; put a .txt file beside each.")
    cast, recordings = Cast(manifest, seed=seed), Prompts(model, manifest)
    with one_thread():
        spoken = sentences(
            model, recordings, cast, entries[:limit], voice=voice, drawing=drawing, seed=seed, progress=progress
        )
    recognisers, listener = find_recognisers(recogniser), find_naturalness()
    report = evaluate_spoken(
        [one.sentence for one in spoken],
        recognisers=recognisers,
        judges=find_speaker_judges(),
        gallery=[] if voice else [_known(recordings, entry) for entry in cast.known()],
        listener=listener,
        megabytes={SPOKEN: weight_of(run, model)},
        title=f"{run.name} on {len(spoken)} sentences",
        notes=_notes(model, drawing, voice, seed),
        examples=8,
        progress=progress,
    )
    mends, failed = mended_recordings(
        model,
        manifest,
        entries,
        count=holes,
        hole_seconds=hole_seconds,
        drawing=drawing,
        seed=seed,
        progress=progress,
    )
    timings = [one.timing for one in spoken if one.timing is not None]
    found = {
        "evaluations": of_mean([one.evaluations for one in spoken]),
        "duration_evaluations": of_mean([one.duration_evaluations for one in spoken]),
        "durations": duration_errors(timings, 1 / model.frame_rate),
        "mending": evaluate_mending(mends, recognisers=recognisers, listener=listener, progress=progress)
        if mends
        else None,
    }
    report = report.model_copy(update={**found, "notes": [*report.notes, *([GIVEN] if mends else []), *failed]})
    write_spoken(report, folder, curves_of_parts(run, CURVES))
    return report, folder


def _notes(model: VoiceboxSpeech, drawing: Drawing, voice: str | None, seed: int) -> list[str]:
    way = way_of(model.voicebox.config, drawing.steps, drawing.method, drawing.sway)
    steps = "adaptive" if way.method == "adaptive" else f"{way.steps} intervals by {way.method}, sway {way.sway:g}"
    guided = "" if drawing.cond_scale == 1 else f", guidance {drawing.cond_scale:g} (every call has two rows)"
    prompts = "another recording of the same speaker" if voice is None else voice
    where = "of one core" if model.device.type == "cpu" else f"on {model.device}"
    return [
        f"The flow: {steps}{guided}, seed {seed}.",
        f"Every sentence is spoken in the voice of {prompts}; time {where} is from text to sound.",
        "The ceiling is the recording's own features, decoded: what a perfect flow would sound like.",
    ]


def _known(recordings: Prompts, entry: Entry) -> Recording:
    wave = recordings.wave(entry).numpy()
    return Recording(entry.speaker or "", entry.text or "", wave, recordings.model.sample_rate)


def _decoded(model: VoiceboxSpeech, wave: Tensor) -> Tensor:
    """A recording [1, samples] through features and back."""
    return model.features.decode(model.features.encode(_whole_frames(model, wave).to(model.device)))


def _whole_frames(model: VoiceboxSpeech, wave: Tensor) -> Tensor:
    hop = model.features.hop
    return wave[:, : wave.shape[1] // hop * hop]


def _numpy(wave: Tensor) -> np.ndarray:
    return (wave if wave.ndim == 2 else wave[None]).cpu().numpy()
