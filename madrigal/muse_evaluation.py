"""Judging what a tokenizer of pictures has learned: where Muse meets the judges."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from madrigal.data.images import ImageFolderDataset, Size
from madrigal.data.manifest import PictureManifest
from madrigal.data.picture_source import PictureSource, pictures_of
from madrigal.engine.machine import prepare_process
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.evaluation import check_writable, kept_from_training, report_folder
from madrigal.judge.curves import read_curves, select
from madrigal.judge.picture_features import find_features
from madrigal.judge.picture_page import write_pictures
from madrigal.judge.pictures import PictureReport, RoundTrip, evaluate_pictures
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
    size = image_size or _trained_size(Path(run)) or _own_size(chosen, vae.downsample_factor)
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


def _trained_size(run: Path) -> Size | None:
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
