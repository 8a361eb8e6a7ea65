"""Judging a tokenizer of pictures, and pictures that are made from captions: where Muse meets the judges."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict
from torch import Tensor

from madrigal.data.images import ImageFolderDataset, Size
from madrigal.data.manifest import PictureManifest
from madrigal.data.picture_source import PictureSource, pictures_of
from madrigal.data.source import Source
from madrigal.data.turns import by_turns
from madrigal.engine.machine import prepare_process
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.evaluation import check_writable, kept_from_training, report_folder
from madrigal.judge.curves import curves_of_parts, read_curves, select
from madrigal.judge.painted import Asked, Learned, PaintedReport, evaluate_painted
from madrigal.judge.painted_page import write_painted
from madrigal.judge.picture_features import find_features
from madrigal.judge.picture_page import write_pictures
from madrigal.judge.pictures import PictureReport, RoundTrip, evaluate_pictures
from madrigal.muse.loading import load_muse
from madrigal.muse.muse import Muse
from madrigal.muse.vae import VQGanVAE

CURVES = ("generator/recon", "valid/recon", "valid/ema/recon")
"""What of a run's metrics is drawn in its report."""
KIND = "style"
"""The field of a manifest that tells kinds of pictures apart, where it has one."""


def round_trip(vae: VQGanVAE) -> RoundTrip:
    """The tokenizer as the judges want it."""

    def there_and_back(pictures: Tensor) -> tuple[Tensor, Tensor]:
        ids = vae.encode(pictures)
        return vae.decode_from_ids(ids), ids

    return there_and_back


def evaluate_vqgan(
    run: str,
    *,
    data: Path | None = None,
    out: Path | None = None,
    limit: int = 100,
    image_size: Size | None = None,
    features: Path | None = None,
    progress: Callable[..., None] | None = None,
) -> tuple[PictureReport, Path]:
    """Judge a tokenizer on pictures that it has not seen, and write report.json, pictures.png and report.html."""
    prepare_process()
    vae = VQGanVAE.from_pretrained(run, discriminators=False)
    folder = report_folder(run, out)
    manifest = (
        pictures_of(data, folder / "data", anew=True)
        if data is not None
        else kept_from_training(Path(run), PictureSource, pictures_of, "pictures")
    )
    check_writable(folder)
    chosen = _spread(manifest, limit)
    size = image_size or trained_size(Path(run)) or _own_size(chosen, vae.downsample_factor)
    pictures = ImageFolderDataset(chosen, size, train=False)
    report = evaluate_pictures(
        torch.stack([pictures[number]["image"] for number in range(len(pictures))]),
        round_trip(vae),
        codebook_size=vae.codebook_size,
        features=find_features(features),
        names=[entry.path for entry in chosen],
        kinds=_kinds(chosen),
        title=f"{Path(run).name} on {len(chosen)} pictures",
        progress=progress,
    )
    curves = select(read_curves(run), CURVES) if (Path(run) / "metrics.jsonl").exists() else []
    write_pictures(report, folder, curves)
    return report, folder


def _spread(manifest: PictureManifest, limit: int) -> PictureManifest:
    """So many pictures from all over the manifest: one that lists style by style should not be judged by the first."""
    entries = list(manifest)
    count = min(limit, len(entries))
    return PictureManifest(manifest.root, [entries[number * len(entries) // count] for number in range(count)])


def _kinds(manifest: PictureManifest) -> list[str] | None:
    kinds = [getattr(entry, KIND, None) for entry in manifest]
    return [str(kind) for kind in kinds] if all(kinds) else None


def trained_size(run: Path) -> Size | None:
    """The size that a run's recipe brings pictures to."""
    if not (run / "recipe.yaml").is_file():
        return None
    values = read_recipe(run / "recipe.yaml").get("data")
    return build_config(PictureSource, values, f"The data of {run / 'recipe.yaml'}").size


def _own_size(manifest: PictureManifest, factor: int) -> Size:
    """The size of all pictures, where they have one."""
    sizes = {(entry.height, entry.width) for entry in manifest}
    if len(sizes) > 1:
        raise UserError("The pictures have several sizes: evaluate the run itself, which says what it was trained on.")
    height, width = sizes.pop()
    return max(factor, height // factor * factor), max(factor, width // factor * factor)


class CaptionedData(Source):
    """What of a run's data says where its pictures are."""

    model_config = ConfigDict(extra="ignore", frozen=True)


LABEL = "label"
"""The field of a manifest that says what is on a picture, in fewer words than its caption."""
LEARNED, TOGETHER = 3000, 16
"""Real pictures that the eye learns from, at the most, and pictures that are made at once."""
HOW = ("timesteps", "cond_scale", "temperature", "choice_temperature")
"""What of how pictures were made is in the report."""
LOSSES = {"vqgan": "recon", "superres_vqgan": "recon", "base": "loss", "superres": "loss"}
"""The loss of each part that is drawn in the report."""


def evaluate_muse(
    run: Path,
    *,
    data: Path | None = None,
    out: Path | None = None,
    limit: int = 100,
    features: Path | None = None,
    label: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    options: dict[str, Any] | None = None,
    progress: Callable[..., None] | None = None,
) -> tuple[PaintedReport, Path]:
    """Make pictures of captions that a run has not seen, and judge them by an eye that has learned from real ones.

    The eye chooses among the labels that are asked for, and learns them from the run's own training pictures. A
    picture's label is the field `label` of its manifest, or another that is named, or else its caption.
    """
    prepare_process()
    muse = load_muse(run, device=device)
    if not muse.base.config.transformer.is_conditioned:
        raise UserError(f"{run} makes pictures without captions: there is nothing to recognise in them.")
    folder = report_folder(str(run), out)
    manifest = (
        pictures_of(data, folder / "data", anew=True)
        if data is not None
        else kept_from_training(run, CaptionedData, pictures_of, "pictures")
    )
    check_writable(folder)
    chosen = _spread(_captioned(manifest, "The pictures to judge on"), limit)
    labels, size = _labels(chosen, label), muse.last.config.image_size
    if label is not None and not any(getattr(entry, label, None) for entry in chosen):
        raise UserError(f"No picture to judge on has a {label!r} in its manifest: check --label.")
    learned = _training_pictures(run, chosen, label)
    texts = [str(entry.text) for entry in chosen]
    painting = {**muse.painting.model_dump(), **(options or {})}
    start = time.monotonic()
    made = _painted(muse, texts, seed, painting, progress)
    seconds = (time.monotonic() - start) / len(texts)
    report = evaluate_painted(
        Asked(texts, labels, _kinds(chosen), _loaded(chosen, size), made),
        Learned(_loaded(learned, size), _labels(learned, label)),
        features=find_features(features),
        title=f"{run.name} on {len(texts)} captions",
        seconds=seconds,
        how={name: painting[name] for name in HOW} | {"seed": seed},
    )
    curves = curves_of_parts(run, LOSSES) or (
        select(read_curves(run), ("valid/loss", "valid/ema/loss")) if (run / "metrics.jsonl").exists() else []
    )
    write_painted(report, folder, curves)
    return report, folder


def _painted(
    muse: Muse, texts: list[str], seed: int, painting: dict[str, Any], progress: Callable[..., None] | None
) -> Tensor:
    """A picture of every caption; caption i with seed + i."""
    names, made = muse.base.config.class_names, []
    for first in range(0, len(texts), TOGETHER):
        some = texts[first : first + TOGETHER]
        given: dict[str, Any] = {"texts": some}
        if muse.base.config.transformer.num_classes is not None:
            unknown = next((text for text in some if text not in (names or ())), None)
            if unknown is not None:
                raise UserError(f"The caption {unknown!r} is none of the run's classes: judge it on those it knows.")
            given = {"classes": [(names or ()).index(text) for text in some]}
        made.append(muse.generate(**given, seed=seed + first, **painting).cpu())
        if progress is not None:
            progress(first + len(some), len(texts))
    return torch.cat(made)


def _training_pictures(run: Path, judged: PictureManifest, label: str | None) -> PictureManifest:
    """Real pictures of the run's training, of all labels asked for alike; none that is judged is among them."""
    if not (run / "recipe.yaml").is_file():
        raise UserError(f"{run} does not say what it was trained on: evaluate the run that it was exported from.")
    source = Path(read_recipe(run / "recipe.yaml")["data"]["path"])
    manifest = _captioned(pictures_of(source, run / "data" / "train"), "The training's pictures")
    held_out = {judged.resolve(entry).resolve() for entry in judged}
    wanted = set(_labels(judged, label))
    some = by_turns(
        (name, entry)
        for name, entry in zip(_labels(manifest, label), manifest, strict=True)
        if name in wanted and manifest.resolve(entry).resolve() not in held_out
    )
    if not some:
        raise UserError(
            "No picture of the training, beside those that are judged, has a label that is asked for: name other "
            "pictures, of labels that the run knows, with --data."
        )
    return PictureManifest(manifest.root, some[:LEARNED])


def _captioned(manifest: PictureManifest, what: str) -> PictureManifest:
    entries = [entry for entry in manifest if entry.text]
    if not entries:
        raise UserError(f"{what} have no captions: give those that have.")
    return PictureManifest(manifest.root, entries)


def _labels(manifest: PictureManifest, label: str | None) -> list[str]:
    return [str(getattr(entry, label or LABEL, None) or entry.text) for entry in manifest]


def _loaded(manifest: PictureManifest, size: Size) -> Tensor:
    pictures = ImageFolderDataset(manifest, size, train=False)
    return torch.stack([pictures[number]["image"] for number in range(len(pictures))])
