"""Words that older scripts have for the model, its flow and its trainer, in the words used here.

What has a meaning is translated. What chose between things of which there is one now may be given as that one; all else
is refused in a sentence that says what to use.
"""

from typing import Any

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
    "use_torchode": (False, "torchdiffeq_ode_method='adaptive' chooses its steps for every row"),
}
SAMPLE: dict[str, tuple[Any, str]] = {
    "decode_to_codes": (False, "give the features (decode_to_audio=False) to the codec"),
}
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


def config_of(options: Options) -> VoiceBoxConfig:
    """The config that keyword arguments make; the width of a frame follows from `audio_enc_dec`, where it is given."""
    options = {name: value for name, value in options.items() if name not in NOTHING_TO_CHOOSE}
    options = without(options, MODEL, "VoiceBox")
    heard_by = options.pop("audio_enc_dec", None)
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
    for older, name in PLAN.items():
        if older in options:
            if name in options:
                raise UserError(f"{where} was given {older} and {name}, which are the same: give one of them.")
            options[name] = options.pop(older)
    return options


def check_features(features: Any, config: VoiceBoxConfig) -> None:
    """Frames of another width could not be heard by the model."""
    if features is not None and features.dim != config.dim_in:
        raise UserError(
            f"The features have {features.dim} numbers in a frame, and the model's dim_in is {config.dim_in}: build it "
            f"with dim_in={features.dim}."
        )
