"""The one door to transformers, which need not be installed, and to checkpoints that others wrote."""

import json
from pathlib import Path
from typing import Any

from madrigal.errors import UserError


def transformers_library(wanted: str) -> Any:
    """The module `transformers`; where it is missing, the sentence says how to get it for `wanted`."""
    try:
        import transformers
    except ImportError as error:
        raise UserError(
            f"{wanted} needs the package transformers: pip install 'madrigal[pretrained]' ({error})."
        ) from error
    return transformers


def foreign_config(checkpoint: str | Path) -> dict[str, Any] | None:
    """`config.json` of a local checkpoint folder; None for a hub name, which is looked up on first use only."""
    folder = Path(checkpoint)
    if not folder.is_dir():
        return None
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is no checkpoint of transformers: its config.json cannot be read.") from error
    return dict(config)


def foreign_folder(checkpoint: str | Path, wanted: str) -> str:
    """The folder of a checkpoint, or of a hub name that was fetched before; the network is not asked."""
    if Path(checkpoint).is_dir():
        return str(checkpoint)
    transformers_library(wanted)
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(str(checkpoint), local_files_only=True))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{wanted} is not on this machine: {checkpoint} is no folder, and no hub name that was fetched before; "
            f"fetch it with `hf download {checkpoint}`, or give the folder of a checkpoint."
        ) from error


def foreign_model(kind: str, checkpoint: str | Path, wanted: str) -> Any:
    """The model at a local folder or hub name, by the class `kind` of transformers, in eval mode without gradients."""
    library = transformers_library(wanted)
    if not Path(checkpoint).is_dir() and str(checkpoint).startswith((".", "/")):
        raise UserError(f"There is no checkpoint folder {checkpoint}; give a folder of transformers, or a hub name.")
    try:
        model = getattr(library, kind).from_pretrained(str(checkpoint))
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"The checkpoint {checkpoint} could not be loaded for {wanted} ({reason}).") from error
    return model.eval().requires_grad_(False)
