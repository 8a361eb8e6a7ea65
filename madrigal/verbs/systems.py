"""The systems that a recipe may name: where the recipe of each lives, and the model that it trains."""

import json
from importlib import import_module
from typing import Any, NamedTuple

from madrigal.errors import UserError


class System(NamedTuple):
    """Both as `module:Class`, imported when they are needed."""

    recipe: str
    model: str | None = None


SYSTEMS = {
    "soundstream": System("madrigal.soundstream.recipe:SoundStreamRecipe", "madrigal.soundstream.codec:SoundStream"),
    "mel-codec": System(
        "madrigal.tokenizers.mel_codec_recipe:MelCodecRecipe", "madrigal.tokenizers.mel_codec:MelCodec"
    ),
    # A tokenizer's config names its kind, and the kind its class.
    "kmeans": System("madrigal.tokenizers.kmeans_recipe:KmeansRecipe"),
    "masked-prediction": System("madrigal.tokenizers.masked_prediction_recipe:MaskedPredictionRecipe"),
    "semantic": System("madrigal.audiolm.recipe:SemanticRecipe", "madrigal.audiolm.semantic:SemanticTransformer"),
    "coarse": System("madrigal.audiolm.recipe:CoarseRecipe", "madrigal.audiolm.coarse:CoarseTransformer"),
    "fine": System("madrigal.audiolm.recipe:FineRecipe", "madrigal.audiolm.fine:FineTransformer"),
    "audiolm": System("madrigal.audiolm.whole_recipe:AudioLMRecipe"),
    "speech-speech": System("madrigal.speartts.recipe:SpeechSpeechRecipe", "madrigal.speartts.model:TextToSemantic"),
    "semantic-to-text": System(
        "madrigal.speartts.recipe:SemanticToTextRecipe", "madrigal.speartts.model:TextToSemantic"
    ),
    "text-to-semantic": System(
        "madrigal.speartts.recipe:TextToSemanticRecipe", "madrigal.speartts.model:TextToSemantic"
    ),
    "speartts": System("madrigal.speartts.whole_recipe:SpearTTSRecipe"),
    "vocoder": System("madrigal.voicebox.vocoder.recipe:VocoderRecipe", "madrigal.voicebox.vocoder.model:Vocoder"),
    "voicebox-flow": System("madrigal.voicebox.recipe:VoiceBoxRecipe", "madrigal.voicebox.model:VoiceBox"),
    "voicebox-distill": System("madrigal.voicebox.recipe:DistillRecipe", "madrigal.voicebox.model:VoiceBox"),
    "aligner": System("madrigal.voicebox.aligner_recipe:AlignerRecipe", "madrigal.voicebox.aligner:Aligner"),
    "durations": System(
        "madrigal.voicebox.durations_recipe:DurationsRecipe", "madrigal.voicebox.durations:DurationPredictor"
    ),
    "voicebox": System("madrigal.voicebox.whole_recipe:VoiceboxWholeRecipe"),
    "mulan": System("madrigal.musiclm.mulan_recipe:MuLaNRecipe", "madrigal.musiclm.mulan:MuLaN"),
    "mulan-quantizer": System(
        "madrigal.musiclm.quantizer_recipe:MuLaNEmbedQuantizerRecipe", "madrigal.musiclm.quantizer:MuLaNEmbedQuantizer"
    ),
    "musiclm": System("madrigal.musiclm.whole_recipe:MusicLMRecipe"),
    "vqgan": System("madrigal.muse.vae_recipe:VQGanRecipe", "madrigal.muse.vae:VQGanVAE"),
    "maskgit": System("madrigal.muse.maskgit_recipe:MaskGitRecipe", "madrigal.muse.maskgit:MaskGit"),
    "token-critic": System("madrigal.muse.maskgit_recipe:TokenCriticRecipe", "madrigal.muse.maskgit:MaskGit"),
    "muse": System("madrigal.muse.whole_recipe:MuseRecipe"),
}


def named(place: str) -> Any:
    """What `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def system_of(name: object, where: str) -> System:
    """The system that is called `name` in `where`."""
    if not isinstance(name, str) or name not in SYSTEMS:
        raise UserError(f"{where}: there is no system {name!r}; there is {', '.join(SYSTEMS)}.")
    return SYSTEMS[name]


def load_recipe(name: str, overrides: list[str]) -> Any:
    """The checked recipe of a shipped name or a file, with `key=value` overrides laid over it."""
    from madrigal.engine.recipe import build_config, read_recipe

    values, where = read_recipe(name, overrides), f"The recipe {name}"
    return build_config(named(system_of(values["system"], where).recipe), values, where)


def model_class(name: str) -> Any:
    """The class of the model in a run, a checkpoint or an exported folder."""
    from madrigal.engine.checkpoint import STATE, read_state
    from madrigal.engine.pretrained import locate
    from madrigal.tokenizers.loading import KINDS, tokenizer_class

    folder = locate(name)
    if (folder / STATE).exists():
        place = system_of(read_state(folder)["system"], str(folder)).model
        if place is not None:
            return named(place)
    try:
        kind = json.loads((folder / "config.json").read_text()).get("kind")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read ({error}); name another run or folder.") from error
    if kind in KINDS:
        return tokenizer_class(kind)
    if kind in ("vocoder", "mulan", "vqgan", "maskgit"):
        return named(SYSTEMS[kind].model or "")
    # An exported codec says nothing of its system.
    return named(SYSTEMS["soundstream"].model or "")
