"""Judging music from text: what independent ears hear of it, beside the codec's ceiling and the recordings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from madrigal.audiolm.draws import Samplings, drawn_with
from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.shared_files import shared
from madrigal.data.source import manifest_of
from madrigal.engine.learned import recipe_of
from madrigal.engine.machine import prepare_process
from madrigal.errors import UserError
from madrigal.evaluation import known_to
from madrigal.judge.curves import curves_of_parts
from madrigal.judge.music import CEILING, GENERATED, RECORDING, Clip, MusicReport, derangement, evaluate_music
from madrigal.judge.music_judges import MEASURES, Known
from madrigal.judge.music_page import write_music
from madrigal.musiclm.captions import captions_of
from madrigal.musiclm.loading import load_musiclm
from madrigal.musiclm.music import MusicLM

Progress = Callable[..., None]
CURVES = {"mulan": "loss", "semantic": "semantic", "coarse": "coarse", "fine": "fine"}
"""The loss of each part that is drawn in the report."""

SAMPLES = 4
KNOWN = 2000
"""Recordings of training that the judges are trained on, at the most."""


def clips_of(
    model: MusicLM,
    manifest: Manifest,
    entries: Sequence[Entry],
    *,
    samples: int = SAMPLES,
    sampling: Samplings = None,
    seed: int = 0,
    batch_size: int = 4,
    progress: Progress | None = None,
) -> list[Clip]:
    """Each caption as music of its recording's length, the recording through the codec, and itself."""
    texts = [captions_of(entry)[0] for entry in entries]
    latents = model.mulan_embed_quantizer.mulan.get_text_latents(texts).detach()
    wrong = derangement(len(entries), seed)
    made: list[Clip] = []
    for first in range(0, len(entries), batch_size):
        batch = entries[first : first + batch_size]
        seeds = [seed + samples * (first + row) for row in range(len(batch))]
        seconds = max(entry.duration for entry in batch)
        drawn = model.draw(texts[first : first + len(batch)], samples, seconds=seconds, sampling=sampling, seed=seeds)
        for entry, one in zip(batch, drawn, strict=True):
            index = len(made)
            wave = read(manifest.resolve(entry), sample_rate=model.sample_rate, channels=1)
            length = wave.shape[-1]
            waves = {GENERATED: one.waves[0][:length], CEILING: through(model, wave), RECORDING: wave[0]}
            scores = {
                label: (model.similarity(each, latents[index]), model.similarity(each, latents[wrong[index]]))
                for label, each in waves.items()
            }
            heard = {label: np.asarray(each.cpu()) for label, each in waves.items()}
            name = Path(entry.path).with_suffix("").as_posix()
            made.append(Clip(name, texts[index], model.sample_rate, attributes_of(entry), heard, scores))
        if progress is not None:
            progress(len(made), len(entries), "drawing")
    return made


@torch.no_grad()
def through(model: MusicLM, wave: Tensor) -> Tensor:
    """A recording [1, samples] as the codec gives it back [samples]: the best that the stages could do."""
    lm = model.audio_lm
    levels = lm.coarse_transformer.num_quantizers
    levels += 0 if lm.fine_transformer is None else lm.fine_transformer.num_quantizers
    codes = lm.codec.tokenize(wave[None].to(lm.device))[..., :levels]
    return lm.codec.decode_from_codebook_indices(codes)[0].mean(0)[: wave.shape[-1]]


def attributes_of(entry: Entry) -> dict[str, str]:
    """What the manifest says of a recording beside its caption."""
    said: dict[str, Any] = entry.model_extra or {}
    return {name: str(said[name]) for name in MEASURES if said.get(name)}


def known_recordings(
    source: Path, prepared_in: Path, rate: int, *, without: Sequence[Path] = (), limit: int = KNOWN
) -> tuple[Known, int]:
    """Recordings of a folder, evenly chosen, that the judges are trained on; and how many were left out.

    These are the files that they will judge (`without`): an ear that knows them by heart would always be right.
    """
    manifest = manifest_of(source, prepared_in)
    entries = [entry for entry in manifest if "instrument" in attributes_of(entry)]
    if not entries:
        raise UserError(
            f"The recordings of {source} do not say their instrument, so that no judge can learn it: "
            "name others with --known FOLDER."
        )
    judged = shared(map(manifest.resolve, entries), without)
    left = [entry for entry in entries if manifest.resolve(entry) not in judged]
    if len({attributes_of(entry)["instrument"] for entry in left}) < 2 and judged:
        raise UserError(
            f"The judges cannot learn from {source}, for {len(judged)} of its {len(entries)} recordings are those that "
            "they have to judge: name others with --known FOLDER, or judge others with --data FOLDER."
        )
    chosen = left[:: -(-len(left) // limit)]
    waves = [read(manifest.resolve(entry), sample_rate=rate, channels=1).numpy() for entry in chosen]
    return Known.of(waves, rate, [attributes_of(entry) for entry in chosen]), len(entries) - len(left)


def trained_on(run: Path) -> Path:
    """The recordings of a run; a folder that was exported does not know them."""
    source = (recipe_of(run).get("data") or {}).get("path")
    if source is None:
        raise UserError(
            f"{run} does not say what it was trained on, and the judges have to learn from such recordings: "
            "name them with --known FOLDER."
        )
    return Path(source)


def evaluate_musiclm(
    run: Path,
    *,
    data: Path,
    known: Path | None = None,
    out: Path | None = None,
    limit: int = 100,
    samples: int = SAMPLES,
    sampling: Samplings = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> tuple[MusicReport, Path]:
    """Judge a run or an exported folder on captioned recordings that it has not seen; writes the report to a folder.

    The judges learn from `known` recordings, or from those that the run was trained on, but never from what they judge.
    """
    prepare_process()
    source = trained_on(run) if known is None else known
    model = load_musiclm(run, device=device)
    folder = out or run / "evaluation"
    manifest = manifest_of(data, folder / "data", anew=True)
    entries = [entry for entry in manifest if captions_of(entry) and "instrument" in attributes_of(entry)][:limit]
    if len(entries) < 2:
        raise UserError(f"{data} has fewer than two recordings with a caption and an instrument in its manifest.")
    files = [manifest.resolve(entry) for entry in entries]
    heard, left_out = known_recordings(source, folder / "data" / "known", model.sample_rate, without=files)
    clips = clips_of(model, manifest, entries, samples=samples, sampling=sampling, seed=seed, progress=progress)
    notes = [f"The best of {samples} by MuLaN's similarity. {drawn_with(sampling, seed)}"]
    notes += known_to(run, folder / "data" / "run", files)
    if left_out:
        notes.append(f"The judges have not learned from {left_out} recordings that they judge here.")
    report = evaluate_music(
        clips, heard, title=f"{run.name} on {len(clips)} captions", notes=notes, seed=seed, progress=progress
    )
    write_music(report, folder, curves_of_parts(run, CURVES))
    return report, folder
