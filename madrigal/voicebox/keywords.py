"""Words that older scripts have for the model, its flow and its trainer, in the words used here.

What has a meaning is translated. What chose between things of which there is one now may be given as that one; all else
is refused in a sentence that says what to use.
"""

from typing import Any

import torch
from torch import Tensor

from madrigal.engine.keywords import renamed
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.voicebox.config import VoiceBoxConfig

Options = dict[str, Any]

NOTHING_TO_CHOOSE = ("attn_flash", "gateloop_use_jax")
"""The fast kernel is always used."""
MODEL: dict[str, tuple[Any, str]] = {
    "use_gateloop_layers": (False, "there is attention alone"),
}
FLOW: dict[str, tuple[Any, str]] = {
    "sigma": (0.0, "the way from noise to speech ends at the speech"),
    "use_torchode": (False, "torchdiffeq_ode_method='adaptive' chooses its steps for every row"),
    "torchode_method_klass": (None, "torchdiffeq_ode_method chooses the solver"),
}
SAMPLE: dict[str, tuple[Any, str]] = {
    "decode_to_codes": (False, "give the features (decode_to_audio=False) to the codec"),
}
# One adaptive solver stands for all of torchdiffeq's, whatever their order: dopri5 is of the fifth, ours of the third.
# Older scripts had tolerances of 1e-5, and here they are 1e-3; ode_rtol and ode_atol change that.
METHODS = {
    "euler": "euler",
    "midpoint": "midpoint",
    "heun2": "heun",
    "heun": "heun",
    "adaptive": "adaptive",
    "bosh3": "adaptive",
    "dopri5": "adaptive",
    "adaptive_heun": "adaptive",
}
PLAN = {"num_warmup_steps": "warmup_steps", "log_every": "log_losses_every", "num_epochs": "num_train_epochs"}


def without(options: Options, settled: dict[str, tuple[Any, str]], where: str) -> Options:
    """The options without those that have one value only, and a sentence where one of these has another."""
    for name, (value, instead) in settled.items():
        if options.get(name, value) not in (value, None):
            raise UserError(f"{where} has {name}={value} only: {instead}.")
    return {name: value for name, value in options.items() if name not in settled}


def config_of(options: Options, given: VoiceBoxConfig | None = None) -> VoiceBoxConfig:
    """The config that keyword arguments make, those of a `given` one changed.

    The width of a frame follows from `audio_enc_dec`, where it is given.
    """
    options = {name: value for name, value in options.items() if name not in NOTHING_TO_CHOOSE}
    options = without(options, MODEL, "VoiceBox")
    heard_by = options.pop("audio_enc_dec", None)
    if given is not None:
        options = {**given.model_dump(), **options}
    if options.get("dim_in") is None and heard_by is not None:
        options["dim_in"] = heard_by.dim
    return build_config(VoiceBoxConfig, options, "VoiceBox")


def method_of(name: str) -> Any:
    """Our solver of that name, ours or torchdiffeq's."""
    if name not in METHODS:
        raise UserError(f"There is no solver {name!r}; there is euler, midpoint, heun and adaptive.")
    return METHODS[name]


def trainer_words(options: Options, where: str) -> Options:
    """A trainer's keywords, with the plan's names for the older ones."""
    options = {name: value for name, value in options.items() if value is not None or name not in PLAN}
    return renamed(options, PLAN, where)


def check_statistics(features: Any, mean: Tensor, std: Tensor) -> None:
    """What a model has learned, features that are normalised by other statistics than `mean` and `std` do not mean."""
    if not bool(getattr(features, "fitted", False)) or not bool(std.any()):
        return  # who has no statistics takes those of the other
    for own, known in ((features.mean, mean), (features.std, std)):
        if not torch.allclose(own.cpu(), known.cpu(), rtol=1e-3, atol=1e-3):
            raise UserError(
                "The features are not normalised as those that the model has learned: give it the vocoder or the codec "
                "that it was trained with."
            )


def check_features(features: Any, config: VoiceBoxConfig) -> None:
    """Frames of another width could not be heard by the model."""
    if features is not None and features.dim != config.dim_in:
        raise UserError(
            f"The features have {features.dim} numbers in a frame, and the model's dim_in is {config.dim_in}: build it "
            f"with dim_in={features.dim}."
        )
