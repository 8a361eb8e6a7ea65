"""Models that rebuild themselves from a folder, a run or a hub name."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

import madrigal
from madrigal.engine.checkpoint import STATE, read_state, read_tensors
from madrigal.engine.recipe import explain
from madrigal.engine.run import RunFolder
from madrigal.errors import UserError

Model = TypeVar("Model", bound=nn.Module)
SHIPPED = Path(madrigal.__file__).parent / "pretrained"


class Pretrained:
    """Gives an `nn.Module` with a pydantic `config` its loaders and savers.

    A folder holds `config.json` and `model.safetensors`. A checkpoint of a run is such a folder too; there the
    averaged weights are preferred. `left_out` names the parts that only training needs.
    """

    Config: ClassVar[type[BaseModel]]
    left_out: ClassVar[tuple[str, ...]] = ()
    config: Any

    @classmethod
    def from_pretrained(cls, name: str | Path, *, averaged: bool = True, **options: Any) -> Self:
        """Rebuild a model from an exported folder, a checkpoint, a run folder, a shipped name or a hub name.

        Only a hub name (`owner/name` that is no folder) goes to the network.
        """
        folder = locate(name)
        try:
            config = cls.Config(**json.loads((folder / "config.json").read_text()))
        except (OSError, ValueError, TypeError) as error:
            reason = explain(error, cls.Config, "it") if isinstance(error, ValidationError) else str(error)
            raise UserError(
                f"{folder} does not hold a {cls.__name__}: its config.json cannot be used ({reason.rstrip('.')})."
            ) from error
        if (folder / STATE).exists():
            read_state(folder)
        weights = read_tensors(folder, "model")
        if averaged:
            weights |= read_tensors(folder, "ema")
        model = cls._rebuild(config, **options)
        model._take(weights, folder)
        model.eval()  # type: ignore[attr-defined]  # to be used as it is; a trainer sets its own mode
        return model

    @classmethod
    def _rebuild(cls, config: BaseModel, **options: Any) -> Self:
        return cls(config, **options)  # type: ignore[call-arg]

    def save_pretrained(self, folder: str | Path, *, half: bool = False) -> Path:
        """Write `config.json` and `model.safetensors` for `from_pretrained`; what was there stays if that fails.

        `half` keeps matrices in 16 bits, which halves the file; loaded again they have 32.
        """
        folder = Path(folder)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; name a folder to write the model into.")
        # Copies: the format has no place for one tensor under two names.
        weights = {name: t.detach().cpu().clone().contiguous() for name, t in self.exported().items()}
        if half:
            weights = {name: t.half() if t.is_floating_point() and t.ndim > 1 else t for name, t in weights.items()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as partial:
                Path(partial, "config.json").write_text(self.config.model_dump_json(indent=2) + "\n")
                save_file(weights, Path(partial, "model.safetensors"))
                # It is written for its owner alone; others may read it where the umask lets them.
                shutil.copymode(Path(partial, "config.json"), Path(partial, "model.safetensors"))
                for file in sorted(Path(partial).iterdir()):
                    file.replace(folder / file.name)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"The model could not be written to {folder} ({reason}); name another folder.") from error
        return folder

    def push_to_hub(self, repo_id: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload the exported model to the Hugging Face hub; returns its address."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder))

    def exported(self) -> dict[str, Tensor]:
        """The state without the parts that only training needs."""
        state: dict[str, Tensor] = self.state_dict()  # type: ignore[attr-defined]
        return {name: tensor for name, tensor in state.items() if not name.startswith(self.left_out)}

    @torch.no_grad()
    def _take(self, weights: dict[str, Tensor], folder: Path) -> None:
        own: dict[str, Tensor] = self.exported()
        wrong = next((n for n in own if n not in weights or weights[n].shape != own[n].shape), None)
        if wrong is not None:
            raise UserError(f"The weights in {folder} do not fit their config.json: {wrong} differs.")
        for name, tensor in own.items():
            tensor.copy_(weights[name])


@contextmanager
def folder_of_parts(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write the parts of a model and a config.json into, which take the place of `target`'s at the end."""
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; name a folder to write the model into.")
    if (target / "config.json").exists() and not overwrite:
        raise UserError(f"{target} holds a model already; name another folder, or replace it with --overwrite.")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".partial-") as partial:
        yield Path(partial)
        # The old config goes first and the new one comes last: a folder that has one is whole.
        (target / "config.json").unlink(missing_ok=True)
        for made in sorted(Path(partial).iterdir(), key=lambda path: path.name == "config.json"):
            if (target / made.name).is_dir():
                shutil.rmtree(target / made.name)
            made.replace(target / made.name)


def moved(model: Model, device: str | torch.device) -> Model:
    """The model on a device, where there is such a one."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # the second is what a torch without CUDA has to say
        reason = str(error).partition("\n")[0].rstrip(".")
        raise UserError(f"The device {str(device)!r} cannot be used here ({reason}).") from error


def locate(name: str | Path) -> Path:
    """The folder that holds `config.json` and weights for `name`."""
    path = Path(name)
    if (path / "config.json").exists():
        return path
    if (path / "checkpoints").is_dir():
        return RunFolder(path).checkpoint("best")
    if parts := sorted(recipe.parent for recipe in path.glob("*/recipe.yaml")):
        raise UserError(f"{path} holds several runs: name one of them, {' or '.join(map(str, parts))}.")
    if path.is_dir():
        raise UserError(f"{path} is neither an exported model, nor a checkpoint, nor a run folder.")
    shipped = SHIPPED / str(name)
    if (shipped / "config.json").exists():
        return shipped
    looks_local = str(name).startswith((".", "/")) or path.parent.is_dir()
    if str(name).count("/") == 1 and not looks_local:
        return _from_hub(str(name))
    known = ", ".join(sorted(p.name for p in SHIPPED.glob("*") if p.is_dir())) or "none"
    raise UserError(f"There is no model {str(name)!r}: no such folder, and the shipped ones are: {known}.")


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "model.safetensors"]))
    except Exception as error:
        raise UserError(f"{name} is no local folder and could not be fetched from the hub ({error}).") from error
