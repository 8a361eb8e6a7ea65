"""Judging what a run has learned: where the systems meet the judges."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from madrigal.data.audio import read, resample
from madrigal.data.manifest import Manifest
from madrigal.data.source import manifest_of
from madrigal.data.split import split
from madrigal.engine.machine import prepare_process
from madrigal.engine.recipe import read_recipe
from madrigal.errors import UserError
from madrigal.judge.codec import Utterance, evaluate_codec
from madrigal.judge.codec_page import write_report
from madrigal.judge.curves import read_curves, select
from madrigal.judge.recognition import Recogniser, find_recogniser
from madrigal.judge.report import Report
from madrigal.soundstream.codec import SoundStream

Wave = Any

CURVES = ("generator/mel", "valid/mel", "valid/ema/mel")
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
        codes = codes[..., : codec.quantizers_for(kbps)]
        heard = resample(codec.decode_from_codebook_indices(codes), config.target_sample_hz, rate)
        return heard.reshape(sound.shape[0], -1).numpy(), codes.flatten(0, 1).numpy()

    return round_trip


def evaluate_run(
    run: str,
    *,
    data: Path | None = None,
    out: Path | None = None,
    rates: list[float],
    limit: int = 100,
    opus: bool = True,
    recogniser: Path | None = None,
    progress: Callable[..., None] | None = None,
) -> tuple[Report, Path]:
    """Judge the codec of a run (or a shipped one) and write report.json, spectrograms.png and report.html."""
    prepare_process()
    codec = SoundStream.from_pretrained(run, discriminators=False).eval()
    folder = out or (Path(run) / "evaluation" if Path(run).is_dir() else Path("evaluation") / Path(run).name)
    manifest = manifest_of(data, folder / "data") if data is not None else held_out(Path(run))
    utterances = [
        Utterance(Path(entry.path).stem, read(manifest.resolve(entry)).numpy(), entry.sample_rate, entry.text)
        for entry in list(manifest)[:limit]
    ]
    model_folder = recogniser or find_recogniser()
    report = evaluate_codec(
        utterances,
        codec_round_trip(codec),
        rates,
        opus=opus,
        recogniser=Recogniser(model_folder) if model_folder is not None else None,
        codebook_size=codec.quantizer.codebook_size,
        name=f"Madrigal {Path(run).name}",
        title=f"{Path(run).name} on {len(utterances)} recordings",
        progress=progress,
    )
    curves = select(read_curves(run), CURVES) if (Path(run) / "metrics.jsonl").exists() else []
    write_report(report, folder, curves)
    return report, folder


def held_out(run: Path) -> Manifest:
    """The recordings of a run's data that its split kept from training."""
    if not (run / "recipe.yaml").exists():
        raise UserError(f"{run} is no run folder with data of its own: name recordings with --data FOLDER.")
    recipe = read_recipe(run / "recipe.yaml")
    if recipe["data"].get("valid_path"):
        return manifest_of(Path(recipe["data"]["valid_path"]), run / "data" / "valid")
    manifest = manifest_of(Path(recipe["data"]["path"]), run / "data" / "train")
    plan = recipe["plan"]
    _, kept = split(len(manifest), plan["valid_frac"], plan["random_split_seed"])
    entries = list(manifest)
    return Manifest(manifest.root, [entries[index] for index in kept])
