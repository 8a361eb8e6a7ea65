"""One recipe for pictures from texts: the tokenizer, the small picture, and the larger one.

    vqgan           pictures to tokens and back
    superres_vqgan  the same for larger pictures, where they have a tokenizer of their own
    tokens/         those of all pictures
    base            small pictures from captions
    superres        the same pictures, larger

`superres_vqgan` and `superres` may be left out; any part may be the name of a finished run.
"""

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from madrigal.data.picture_source import pictures_of
from madrigal.data.source import Source
from madrigal.engine.parts import DATA, TOKENS, SplitRecipe, WholeTraining, name_of_part
from madrigal.engine.progress import tell
from madrigal.errors import UserError
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_config import MaskGitConfig
from madrigal.muse.maskgit_recipe import MaskGitRecipe, completed
from madrigal.muse.painting import Painting
from madrigal.muse.vae import VQGanVAE
from madrigal.muse.vae_recipe import VQGanRecipe


class MuseRecipe(SplitRecipe):
    """`system: muse`."""

    title: ClassVar[str] = "Muse"
    kinds: ClassVar[dict[str, tuple[type[BaseModel], ...]]] = {
        "vqgan": (VQGanRecipe,),
        "superres_vqgan": (VQGanRecipe,),
        "base": (MaskGitRecipe,),
        "superres": (MaskGitRecipe,),
    }
    one_by_one: ClassVar[str] = "vqgan, then maskgit for the base and for the super-resolution"

    system: Literal["muse"]
    data: Source = Field(description="pictures with captions")
    vqgan: str | dict[str, Any] = Field(description="a finished VQGAN, or the recipe of one to train")
    superres_vqgan: str | dict[str, Any] | None = Field(None, description="another one for the larger pictures")
    base: str | dict[str, Any] = Field(description="a finished base, or the recipe of one to train")
    superres: str | dict[str, Any] | None = Field(
        None, description="what makes its pictures larger; none: nothing does"
    )
    tokens: Path | None = Field(None, description="tokens that several runs share; default: the run's own")
    generate: Painting = Field(
        default_factory=Painting, description="how pictures are made if nothing else is asked for"
    )

    @field_validator(*kinds, mode="before")
    @classmethod
    def _a_name_is_enough(cls, value: Any) -> Any:
        return name_of_part(value)

    def given(self, name: str, run: Path) -> dict[str, Any]:
        values: dict[str, Any] = {"data": self.data_of(run)}
        if name in ("base", "superres"):
            values["vae"] = self.at("vqgan", run)
            if name == "superres" and self.superres_vqgan is not None:
                values |= {"vae": self.at("superres_vqgan", run), "cond_vae": self.at("vqgan", run)}
            values["data"]["tokens"] = str(run / TOKENS if self.tokens is None else self.tokens)
        return values

    def check(self, run: Path) -> None:
        """Before anything is trained: sizes that fit each other, and whole tokens."""
        base, larger, factor = self._model("base", run), self._model("superres", run), self._factor("vqgan", run)
        sides = [] if base is None else [("base's image_size", base.image_size, factor)]
        if larger is not None:
            large = factor if self.superres_vqgan is None else self._factor("superres_vqgan", run)
            sides.append(("super-resolution's image_size", larger.image_size, large))
        for name, size, cell in sides:
            if any(side % cell for side in size):
                raise UserError(
                    f"The {name} is {size}, and a token covers {cell} pixels a side: give multiples of that."
                )
        if base is not None and base.cond_image_size is not None:
            raise UserError("The base makes pictures from nothing: leave out its cond_image_size.")
        if base is not None and larger is not None and larger.cond_image_size != base.image_size:
            raise UserError(
                f"The base makes pictures of {base.image_size}, and the super-resolution enlarges those of "
                f"{larger.cond_image_size}: give both the same."
            )

    def reading(self, run: Path) -> list[str]:
        """The parts that are trained, or were, with captions."""
        models = {name: self._model(name, run) for name in ("base", "superres")}
        return [name for name, model in models.items() if model is not None and model.transformer.reads_text]

    def _model(self, name: str, run: Path) -> MaskGitConfig | None:
        value = getattr(self, name)
        if value is None:
            return None
        if isinstance(value, dict):
            return completed(self.part(name, run).model, 2, 2, ["a caption"])
        return MaskGit.from_pretrained(value).config

    def _factor(self, name: str, run: Path) -> int:
        value = getattr(self, name)
        if isinstance(value, dict):
            return int(self.part(name, run).model.downsample_factor)
        return VQGanVAE.from_pretrained(value, discriminators=False).downsample_factor

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> "MuseTraining":
        """Everything in the folder `run`, one part after another."""
        return MuseTraining(self, run, resume=resume, overwrite=overwrite)


class MuseTraining(WholeTraining):
    """The parts in order, on pictures that are prepared once."""

    _whole: MuseRecipe

    def _prepare(self, *, anew: bool) -> dict[str, Any]:
        sources = self._whole.sources.items()
        pictures = {name: pictures_of(path, self.path / DATA / name, anew=anew, say=tell) for name, path in sources}
        bare = next((name for name, found in pictures.items() if all(entry.text is None for entry in found)), None)
        reading = [] if bare is None else self._whole.reading(self.path)
        if bare is not None and reading:
            raise UserError(
                f"No picture in {self._whole.sources[bare]} has a caption: give each a .txt beside it or a line in "
                "metadata.jsonl, or train without texts by "
                f"{' and '.join(f'{name}.model.transformer.text_encoder=none' for name in reading)}."
            )
        return pictures
