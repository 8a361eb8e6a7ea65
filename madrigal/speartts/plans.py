"""The plans of the three trainings: what is chosen beside the engine's own plan."""

from collections.abc import Callable
from typing import Any, Self

from pydantic import Field, model_validator

from madrigal.engine.plan import Plan
from madrigal.engine.schedule import ScheduleName


class SpearPlan(Plan):
    """A plan with a warm-up and a cosine as its first choice."""

    initial_lr: float = Field(1e-5, ge=0, description="where the warm-up starts")
    scheduler: ScheduleName | Callable[[int], float] | type = Field(
        "cosine", description="constant, linear or cosine; in Python also a curve or a torch scheduler class"
    )
    should_train_early_exit_layer_if_available: bool = Field(
        True, description="where speech is written: the head at the early exit learns too"
    )


class PretrainPlan(SpearPlan):
    """Speech to speech: what is taken away, and what is asked for."""

    deletion_prob: float = Field(0.6, gt=0, lt=1, description="share of the tokens that is deleted")
    reconstruct_seq: bool = Field(False, description="ask for all tokens, not only for the deleted ones")
    mask_id: int | None = Field(
        None,
        ge=0,
        description="a mask stands where something was deleted; it has a vector of its own, so that the number plays "
        "no part; with reconstruct_seq",
    )

    @model_validator(mode="after")
    def _a_mask_needs_the_whole(self) -> Self:
        if self.mask_id is not None and not self.reconstruct_seq:
            raise ValueError("mask_id needs reconstruct_seq=true")
        return self


class ReadPlan(SpearPlan):
    """Speech to text."""

    freeze_encoder: bool = Field(
        True, description="encoder and semantic embedding stay as pretraining left them; false: everything learns"
    )
    mask_prob: float = Field(
        0.0, ge=0, lt=1, description="share of the speech that is hidden while it learns, in spans of three tokens"
    )
    reads_per_batch: int = Field(
        1, ge=0, description="rows of each validation batch that are read out, for the character error rate"
    )


class SpeakPlan(SpearPlan):
    """Text to speech."""

    tuned_encoder_layers: int | None = Field(
        2, ge=0, description="lower encoder layers that learn, with the text embedding; null: everything learns"
    )
    freeze_encoder_layers_below: int | None = Field(
        None, ge=0, description="the other way round: encoder layers up to this one stay, the others learn"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_takes_the_place_of_the_other(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("freeze_encoder_layers_below") is None:
            return values
        return {"tuned_encoder_layers": None, **values}

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.freeze_encoder_layers_below is not None and self.tuned_encoder_layers is not None:
            raise ValueError("freeze_encoder_layers_below needs tuned_encoder_layers=null: give one of them")
        return self
