"""From a run, of all parts or of a MaskGit alone, or an exported folder to a Muse; and the way into a folder."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.engine.exporting import CONFIG, config_of, part_of, written_whole
from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import moved
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.muse import Muse
from madrigal.muse.painting import Painting
from madrigal.muse.recognising import SYSTEMS, is_muse
from madrigal.muse.vae import VQGanVAE

__all__ = ["export_muse", "is_muse", "load_muse"]

VAE, LARGE_VAE, BASE, SUPERRES = "vqgan", "superres_vqgan", "base", "superres"


class MuseFolder(BaseModel):
    """The config.json of an exported folder, which holds a folder for each part."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["muse"] = "muse"
    format: Literal[1] = 1
    generate: Painting = Field(default_factory=Painting)


def load_muse(name: str | Path, *, averaged: bool = True, device: str | torch.device = "cpu") -> Muse:
    """The parts of a run or of an exported folder, ready to make pictures. It goes to no network."""
    found = _found(Path(name))
    vae = _vae(found.vae, averaged=averaged)
    base = _stage(found.base, averaged=averaged, vae=vae)
    if base.is_superres:
        raise UserError(f"{name} only makes pictures larger: name a run of muse, or a base.")
    superres = None
    if found.superres is not None:
        large = vae if found.large_vae is None else _vae(found.large_vae, averaged=averaged)
        superres = _stage(found.superres, averaged=averaged, vae=moved(large, device), cond_vae=vae)
    moved(vae, device)
    return moved(Muse(base, superres, painting=found.painting), device)


def export_muse(run: str | Path, target: str | Path, *, averaged: bool = True, overwrite: bool = False) -> Path:
    """Write all that makes pictures as one folder: a folder for each part, and config.json; in 16 bits."""
    found, target = _found(Path(run)), Path(target)
    muse = load_muse(run, averaged=averaged)
    with written_whole(target, overwrite=overwrite) as partial:
        # In full: tokens are known by the weights that made them.
        muse.base.vae.save_pretrained(partial / VAE)
        muse.base.save_pretrained(partial / BASE, half=True)
        if muse.superres is not None:
            muse.superres.save_pretrained(partial / SUPERRES, half=True)
            if muse.superres.vae is not muse.base.vae:
                muse.superres.vae.save_pretrained(partial / LARGE_VAE)
        told = MuseFolder(generate=found.painting)
        (partial / CONFIG).write_text(told.model_dump_json(indent=2) + "\n")
    return target


class _Folder(NamedTuple):
    """Where the parts are, and how pictures are made."""

    vae: Path
    base: Path
    superres: Path | None
    large_vae: Path | None
    painting: Painting


def _vae(place: Path, *, averaged: bool) -> VQGanVAE:
    return VQGanVAE.from_pretrained(place, averaged=averaged, discriminators=False)


def _stage(place: Path, *, averaged: bool, **tools: Any) -> MaskGit:
    if not ((place / "checkpoints").is_dir() or (place / CONFIG).is_file()):
        raise UserError(
            f"The part {place.name} of {place.parent} is not there yet: go on with `madrigal train --resume --run "
            f"{place.parent}`."
        )
    return MaskGit.from_pretrained(place, averaged=averaged, **tools)


def _found(folder: Path) -> _Folder:
    said = recipe_of(folder)
    system = said.get("system")
    if system == "muse":
        painting = build_config(Painting, said.get("generate") or {}, f"{folder}: generate")
        superres, large = (
            None if said.get(name) is None else part_of(folder, name, said[name]) for name in (SUPERRES, LARGE_VAE)
        )
        vae, base = (part_of(folder, name, said.get(name)) for name in (VAE, BASE))
        return _Folder(vae, base, superres, large, painting)
    if system == "token-critic":
        said = recipe_of(Path(said["maskgit"]))
    if system in SYSTEMS and "vae" in said:
        return _Folder(Path(said["vae"]), folder, None, None, Painting())
    try:
        told = MuseFolder(**{"kind": None, **config_of(folder)})
    except ValidationError as error:
        raise UserError(f"{folder} is no run that makes pictures, and no exported one.") from error
    superres, large = (folder / name if (folder / name).is_dir() else None for name in (SUPERRES, LARGE_VAE))
    return _Folder(folder / VAE, folder / BASE, superres, large, told.generate)
