"""The recipes of MaskGit's trainings, and the trainers that follow them."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.learned import LearnedRecipe, recipe_of
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_config import MaskGitConfig
from madrigal.muse.maskgit_plan import MaskGitPlan
from madrigal.muse.maskgit_source import CaptionedSource
from madrigal.muse.maskgit_training import MaskGitTrainer, TokenCriticTrainer
from madrigal.muse.vae import VQGanVAE
from madrigal.tokenizers.text_encoders import minilm_folder

WHERE = "The recipe's model"
AUTO = "auto"
"""As a text encoder in a recipe: minilm where it is installed, and bytes elsewhere. The run keeps which it was."""


class MaskGitRecipe(LearnedRecipe):
    """`system: maskgit`. The sizes of codebooks follow from the vae, and classes from the captions."""

    system: Literal["maskgit"]
    vae: str = Field(description="the run or the folder of a VQGAN")
    cond_vae: str | None = Field(None, description="that of the low resolution; default: the same")
    model: dict[str, Any] = Field(default_factory=dict)
    data: CaptionedSource
    plan: MaskGitPlan

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded: what the vae would say is stood in for."""
        completed(self.model, 2, 2, ["a caption"])
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> MaskGitTrainer:
        """Build the model from the plan's seed, and its trainer in the folder `run`."""
        vae, cond_vae = vaes(self.vae, self.cond_vae)
        config = completed(self.model, vae.codebook_size, (cond_vae or vae).codebook_size, self._captions(run))
        seed_everything(self.plan.seed, "weights")
        return MaskGitTrainer(
            MaskGit.build(config, vae=vae, cond_vae=cond_vae),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=config.model_dump(mode="json", exclude_defaults=True)),
        )

    def _captions(self, run: Path) -> list[str]:
        """All different captions, where they are classes."""
        if _part(self.model, "transformer").get("text_encoder") != "classes":
            return []
        pictures = self.data.pictures(self.data.path, (8, 8), run / "data" / "train", train=False)
        return sorted(set(pictures.captions or []))


class TokenCriticRecipe(LearnedRecipe):
    """`system: token-critic`: a critic for a finished MaskGit, which stays as it is."""

    system: Literal["token-critic"]
    maskgit: str = Field(description="a run of maskgit")
    model: dict[str, Any] = Field(
        default_factory=dict, description="the critic's options where they are not those of the MaskGit's transformer"
    )
    data: CaptionedSource
    plan: MaskGitPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> TokenCriticTrainer:
        """The MaskGit with a new critic, and its trainer in the folder `run`."""
        told = recipe_of(Path(self.maskgit))
        if "vae" not in told:
            raise UserError(f"{self.maskgit} is no run of maskgit; name one with maskgit=RUN.")
        vae, cond_vae = vaes(told["vae"], told.get("cond_vae"))
        judged = MaskGit.from_pretrained(self.maskgit, vae=vae, cond_vae=cond_vae)
        values = judged.config.model_dump()
        critic = {**values["transformer"], "self_cond": False, **self.model}
        config = build_config(
            MaskGitConfig, {**values, "self_token_critic": False, "token_critic": critic}, "The recipe's critic"
        )
        seed_everything(self.plan.seed, "weights")
        model = MaskGit.build(config, vae=vae, cond_vae=cond_vae)
        model.transformer.load_state_dict(judged.transformer.state_dict())
        return TokenCriticTrainer(
            model,
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=self.model),
        )


def vaes(vae: str, cond_vae: str | None) -> tuple[VQGanVAE, VQGanVAE | None]:
    """Ready to be used, without what only training needs."""
    return _vae(vae), None if cond_vae is None else _vae(cond_vae)


def _vae(name: str) -> VQGanVAE:
    return VQGanVAE.from_pretrained(name, discriminators=False)


def completed(model: dict[str, Any], tokens: int, cond_tokens: int, captions: list[str]) -> MaskGitConfig:
    """A recipe's options with the sizes of the codebooks, and with the classes where captions are classes."""
    net = {"num_tokens": tokens, **_part(model, "transformer")}
    if net.get("text_encoder") == AUTO:
        net["text_encoder"] = "minilm" if minilm_folder() else "bytes"
    if model.get("cond_image_size") is not None:
        net = {"num_cond_tokens": cond_tokens, **net}
    more: dict[str, Any] = {}
    if net.get("text_encoder") == "classes" and "num_classes" not in net:
        net["num_classes"], more["class_names"] = len(captions), tuple(captions)
    if model.get("token_critic") is not None:
        # It reads what the transformer reads.
        shared = {name: value for name, value in net.items() if name != "self_cond"}
        more["token_critic"] = {**shared, **_part(model, "token_critic")}
    return build_config(MaskGitConfig, {**model, **more, "transformer": net}, WHERE)


def _part(model: dict[str, Any], name: str) -> dict[str, Any]:
    value = model.get(name) or {}
    if not isinstance(value, dict):
        raise UserError(f"{WHERE}.{name} should be a mapping of keys to values.")
    return value
