"""Judging what a run has learned: where the systems meet the judges."""

import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from madrigal.data.audio import read, resample
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.shared_files import shared
from madrigal.data.source import AnyListing, AudioSource, Source, manifest_of
from madrigal.data.split import split
from madrigal.engine.learned import recipe_of
from madrigal.engine.machine import prepare_process
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.codec import Copy, Utterance, evaluate_codec, evaluate_copies
from madrigal.judge.codec_page import write_report
from madrigal.judge.curves import read_curves, select
from madrigal.judge.recognition import Recogniser, find_recogniser
from madrigal.judge.report import Report
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import levels_for
from madrigal.tokenizers.mel_features import MelFeatures
from madrigal.voicebox.vocoder.model import Vocoder

Wave = Any

CURVES = ("generator/mel", "mel", "valid/mel", "valid/ema/mel")
"""What of a codec's metrics is drawn in its report."""


def codec_round_trip(codec: SoundStream) -> Callable[[Wave, int, float], tuple[Wave, Wave]]:
    """The codec as the judges want it: (wave [channels, samples], rate, kbps) to the wave again and its codes."""

    @torch.no_grad()
    def round_trip(wave: Wave, rate: int, kbps: float) -> tuple[Wave, Wave]:
        config = codec.config
        sound = torch.as_tensor(wave, dtype=torch.float32)
        # A mono codec takes the channels of a stereo file as a batch.
        batch = sound[:, None] if config.input_channels == 1 else sound[None]
        codes = codec.tokenize(resample(batch, rate, config.target_sample_hz))
        codes = codes[..., : levels_for(codec, kbps, len(sound)) * codec.rq_groups]
        heard = resample(codec.decode_from_codebook_indices(codes), config.target_sample_hz, rate)
        return heard.reshape(sound.shape[0], -1).numpy(), codes.flatten(0, 1).numpy()

    return round_trip


def evaluate_run(
    run: str,
    *,
    data: Path | None = None,
    out: Path | None = None,
    rates: list[float] | None = None,
    limit: int = 100,
    opus: bool = True,
    recogniser: Path | None = None,
    progress: Callable[..., None] | None = None,
) -> tuple[Report, Path]:
    """Judge the codec of a run (or a shipped one) and write report.json, spectrograms.png and report.html."""
    prepare_process()
    codec = SoundStream.from_pretrained(run, discriminators=False).eval()
    folder = report_folder(run, out)
    manifest = manifest_of(data, folder / "data", anew=True) if data is not None else held_out(Path(run))
    check_writable(folder)
    channels = 2 if codec.config.input_channels == 2 else None
    utterances = _utterances(manifest, limit, channels)
    # What cannot be coded is told before hours of judging, not after.
    rates = rates or own_rates(codec)
    for kbps, wave in product(rates, {len(item.wave): item.wave for item in utterances}.values()):
        levels_for(codec, kbps, len(wave))
    report = evaluate_codec(
        utterances,
        codec_round_trip(codec),
        rates,
        opus=opus,
        recogniser=_recogniser(recogniser, utterances),
        codebook_size=codec.quantizer.codebook_size,
        name=f"Madrigal {Path(run).name}",
        title=f"{Path(run).name} on {len(utterances)} recordings",
        progress=progress,
    )
    curves = select(read_curves(run), CURVES) if (Path(run) / "metrics.jsonl").exists() else []
    write_report(report, folder, curves)
    return report, folder


def vocoder_copy(features: MelFeatures) -> Copy:
    """Copy synthesis as the judges want it: (wave [channels, samples], rate) to the wave made again of its log-mels."""

    def copy(wave: Wave, rate: int) -> Wave:
        sound = resample(torch.as_tensor(wave, dtype=torch.float32), rate, features.sample_rate)
        heard = features.decode(features.encode(sound))
        return resample(heard, features.sample_rate, rate).numpy()

    return copy


def evaluate_vocoder(
    run: str,
    *,
    data: Path | None = None,
    out: Path | None = None,
    limit: int = 100,
    recogniser: Path | None = None,
    progress: Callable[..., None] | None = None,
) -> tuple[Report, Path]:
    """Judge what a vocoder makes of recordings' log-mels, with Griffin-Lim beside it; the report is like a codec's."""
    prepare_process()
    vocoder = Vocoder.from_pretrained(run, discriminators=False)
    folder = report_folder(run, out)
    manifest = manifest_of(data, folder / "data", anew=True) if data is not None else held_out(Path(run))
    check_writable(folder)
    utterances = _utterances(manifest, limit, channels=1)
    name = f"Madrigal {Path(run).name}"
    copies = {name: vocoder_copy(vocoder.features()), "Griffin-Lim": vocoder_copy(MelFeatures(vocoder.config))}
    report = evaluate_copies(
        utterances,
        copies,
        recogniser=_recogniser(recogniser, utterances),
        title=f"{Path(run).name} on {len(utterances)} recordings",
        progress=progress,
    )
    curves = select(read_curves(run), CURVES) if (Path(run) / "metrics.jsonl").exists() else []
    write_report(report, folder, curves)
    return report, folder


def report_folder(run: str, out: Path | None) -> Path:
    return out or (Path(run) / "evaluation" if Path(run).is_dir() else Path("evaluation") / Path(run).name)


def _utterances(manifest: Manifest, limit: int, channels: int | None) -> list[Utterance]:
    return [
        Utterance(Path(e.path).stem, read(manifest.resolve(e), channels=channels).numpy(), e.sample_rate, e.text)
        for e in list(manifest)[:limit]
    ]


def check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError("it is read-only")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"The report folder {folder} cannot be written ({reason}); name another with --out.") from error


def _recogniser(named: Path | None, utterances: list[Utterance]) -> Recogniser | None:
    """The recogniser that was asked for, or one that is at hand where there are words to recognise."""
    if named is not None:
        return Recogniser(named)
    found = find_recogniser()
    if found is None or not packages.available("recogniser") or not any(item.text for item in utterances):
        return None
    return Recogniser(found)


def own_rates(codec: SoundStream) -> list[float]:
    """A quarter, a half and all of the codec's levels, in kbps."""
    levels = sorted({max(1, codec.num_quantizers // part) for part in (4, 2, 1)})
    return [codec.bitrate(count) / 1000 for count in levels]


def held_out(run: Path, used: Callable[[Entry], bool] = lambda _: True) -> Manifest:
    """The recordings of a run's data that its split kept from training, of those that were `used` at all."""
    return kept_from_training(run, AudioSource, manifest_of, "recordings", used)


def kept_from_training(
    run: Path,
    kind: type[Source],
    listing: Callable[[Path, Path], AnyListing],
    what: str,
    used: Callable[[Any], bool] = lambda _: True,
) -> AnyListing:
    """What of a run's data its split kept from training, or its validation set where it has one."""
    if not (run / "recipe.yaml").exists():
        raise UserError(f"{run} is no run folder with data of its own: name {what} with --data FOLDER.")
    recipe = read_recipe(run / "recipe.yaml")
    source = build_config(kind, recipe.get("data"), f"The data of {run / 'recipe.yaml'}")
    if source.valid_path is not None:
        return listing(source.valid_path, run / "data" / "valid")
    manifest = listing(source.path, run / "data" / "train")
    plan = recipe.get("plan") or {}
    entries = [entry for entry in manifest if used(entry)]
    _, kept = split(len(entries), plan.get("valid_frac", 0.0), plan.get("random_split_seed", 0))
    if not kept:
        raise UserError(f"{run} was trained on all of its data: name other {what} with --data FOLDER.")
    return type(manifest)(manifest.root, [entries[index] for index in kept])


def known_to(run: Path, prepared_in: Path, files: Sequence[Path]) -> list[str]:
    """A note where some of the files are in the data of a run; none where its data is not known or no longer there."""
    source = (recipe_of(run).get("data") or {}).get("path")
    if source is None or not Path(source).exists():
        return []
    manifest = manifest_of(Path(source), prepared_in)
    seen = len(shared(files, map(manifest.resolve, manifest)))
    told = (
        f"{seen} of the {len(files)} recordings are in the data that the run was trained on: "
        "the figures do not tell how it does with what is new to it."
    )
    return [told] if seen else []
