"""Which models there are, and those that are in memory: loaded once, when they are first needed.

Everything is found by listing folders; a request only names what is listed.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from madrigal.engine.exporting import config_of
from madrigal.engine.learned import recipe_of
from madrigal.engine.pretrained import SHIPPED
from madrigal.errors import UserError
from madrigal.studio.errors import ApiError, shown
from madrigal.studio.runs import Recipes, run_folders
from madrigal.studio.settings import StudioSettings
from madrigal.studio.work import interruptible
from madrigal.voicebox.voice import VOICES, voice_files

Kind = Literal["speech", "pictures", "music", "continuation", "codec"]
SYSTEMS: dict[str, Kind] = {
    "voicebox": "speech",
    "muse": "pictures",
    "maskgit": "pictures",
    "token-critic": "pictures",
    "musiclm": "music",
    "audiolm": "continuation",
    "soundstream": "codec",
}
"""What a run, or an exported folder, of a system is good for."""
SHIPPED_MODELS = ("voice-24k-live", "voice-24k", "speech-16k")
"""The first voice is the default: it is the one that is heard soonest."""
ALIASES: dict[Kind, tuple[str, ...]] = {
    "speech": ("tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
    "pictures": ("dall-e-2", "dall-e-3", "gpt-image-1"),
}
"""Names that programs send who never asked what there is."""


@dataclass(frozen=True)
class Model:
    """A model that can be asked for: its name, what it does, and the folder that it is loaded from."""

    id: str
    kind: Kind
    folder: Path
    created: int

    def voices(self) -> dict[str, Path]:
        """Its own voices by name, the one that speaks where none is named first."""
        files = _voices_of(self.folder, _changed(self.folder / VOICES))
        first = config_of(self.folder).get("voice")
        return {**({first: files[first]} if first in files else {}), **files}

    def defaults(self) -> dict[str, float]:
        """How it is drawn from where a request does not say."""
        said = recipe_of(self.folder).get("say") or config_of(self.folder).get("say")
        if self.kind != "speech" or not isinstance(said, dict):
            return {}
        return {name: said[name] for name in ("steps", "cond_scale") if isinstance(said.get(name), int | float)}

    @property
    def is_distilled(self) -> bool:
        """Whether its flow knows one way only, with the guidance built in."""
        if self.kind != "speech":
            return False
        has_student = recipe_of(self.folder).get("student") is not None
        return has_student or config_of(self.folder / "flow").get("distilled_steps") is not None


class Models:
    """All models of a studio by name."""

    def __init__(self, settings: StudioSettings, loaders: dict[Kind, Callable[[Path, str], Any]] | None = None) -> None:
        self._settings = settings
        self._loaders = {**LOADERS, **(loaders or {})}
        self._loaded: OrderedDict[tuple[Path, Kind, str], Any] = OrderedDict()
        self._lock = threading.RLock()
        self._recipes = Recipes()
        names = [path.name for path in settings.voice_runs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"Two runs of --voice-run are named {twice[0]}; rename one of their folders.")

    def listed(self) -> list[Model]:
        """All of them, each name once."""
        known: dict[str, Model] = {}
        for model in self._found():
            known.setdefault(model.id, model)
        return list(known.values())

    def _found(self) -> Iterator[Model]:
        """The named voices first, then what comes with madrigal, then the runs of the folder."""
        named = [(path.name, path) for path in self._settings.voice_runs]
        if self._settings.shipped:
            named += [(name, SHIPPED / name) for name in SHIPPED_MODELS]
        yield from filter(None, (self._model(name, path) for name, path in named))
        runs = run_folders(self._settings.folder).items()
        yield from filter(None, (self._model(name, path) for name, path in runs))

    def find(self, name: str | None, kind: Kind) -> Model:
        """The model of this name and kind, or the first of the kind where none is named."""
        wanted = None if name in ALIASES.get(kind, ()) else name
        fitting = []
        for model in self._found():
            if model.kind == kind and wanted in (None, model.id):
                return model
            fitting += [model] if model.kind == kind else []
        known = f"there is {', '.join(model.id for model in fitting)}" if fitting else "there is none"
        asked = "" if name is None else f" {shown(name)}"
        raise ApiError(404, f"There is no model{asked} for {kind}; {known}.", code="model_not_found", param="model")

    def _model(self, name: str, folder: Path) -> Model | None:
        """What lies in a folder, if it is good for something."""
        recipe = self._recipes.of(folder)
        system = recipe.get("system")
        if system is None:
            config = config_of(folder)
            # An exported codec says nothing of its system.
            system = config.get("kind") or ("soundstream" if "codebook_size" in config else None)
        kind = SYSTEMS.get(str(system))
        if kind is None or not _is_usable(folder, recipe) or self._only_enlarges(recipe):
            return None
        try:
            return Model(name, kind, folder, int(folder.stat().st_mtime))
        except OSError:
            return None

    def _only_enlarges(self, recipe: dict[str, Any]) -> bool:
        """Whether it is a stage that makes pictures larger, or its critic: neither can begin one."""
        judged = recipe.get("maskgit")
        if recipe.get("system") == "token-critic" and isinstance(judged, str):
            recipe = self._recipes.of(Path(judged))
        model = recipe.get("model")
        return recipe.get("system") == "maskgit" and isinstance(model, dict) and bool(model.get("cond_image_size"))

    def loaded(self, model: Model) -> Any:
        """The model itself; in a worker's thread, for it may take its time."""
        key = (model.folder, model.kind, _stamp(model.folder))
        with self._lock:
            if key not in self._loaded:
                for other in [k for k in self._loaded if k[:2] == key[:2]]:
                    del self._loaded[other]  # it has learned since
                self._loaded[key] = self._load(model)
                while len(self._loaded) > self._settings.limits.models:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(key)
            return self._loaded[key]

    @property
    def in_memory(self) -> int:
        return len(self._loaded)

    def _load(self, model: Model) -> Any:
        from madrigal.layers.transformer import Transformer

        try:
            made = self._loaders[model.kind](model.folder, self._settings.device)
        except UserError as error:
            # The sentence is for whoever trains; it names folders.
            raise ApiError(503, f"The model {model.id} cannot be loaded now.", code="model_unusable") from error
        return interruptible(made, (Transformer,)) if hasattr(made, "modules") else made


@functools.lru_cache(maxsize=256)
def _voices_of(folder: Path, _: int) -> dict[str, Path]:
    """Read once for every state of the folder."""
    return voice_files(folder)


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _is_usable(folder: Path, recipe: dict[str, Any]) -> bool:
    """Something has been learned, here or in a part that the recipe names; whether it is enough shows later."""
    found = ("config.json", "*/config.json", "checkpoints/step-*", "*/checkpoints/step-*")
    if any(next(folder.glob(pattern), None) is not None for pattern in found):
        return True
    return any(isinstance(value, str) and Path(value).is_dir() for value in recipe.values())


def _stamp(folder: Path) -> str:
    """Changes when the model has learned more."""
    steps = [*folder.glob("checkpoints/step-*"), *folder.glob("*/checkpoints/step-*")]
    return ",".join(sorted(f"{path.parent.parent.name}/{path.name}" for path in steps))


def _speech(folder: Path, device: str) -> Any:
    from madrigal.voicebox.loading import load_voicebox

    return load_voicebox(folder, device=device)


def _pictures(folder: Path, device: str) -> Any:
    from madrigal.muse.loading import load_muse

    return load_muse(folder, device=device)


def _music(folder: Path, device: str) -> Any:
    from madrigal.musiclm.loading import load_musiclm

    return load_musiclm(folder, device=device)


def _continuation(folder: Path, device: str) -> Any:
    from madrigal.audiolm.loading import load_audiolm

    return load_audiolm([folder], device=device)


def _codec(folder: Path, device: str) -> Any:
    from madrigal.soundstream.codec import SoundStream

    return SoundStream.from_pretrained(folder, discriminators=False).eval().to(device)


LOADERS: dict[Kind, Callable[[Path, str], Any]] = {
    "speech": _speech,
    "pictures": _pictures,
    "music": _music,
    "continuation": _continuation,
    "codec": _codec,
}
