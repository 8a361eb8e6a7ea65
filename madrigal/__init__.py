"""Madrigal trains, runs and judges generative models of sound and image.

The public classes load on first use, so that `import madrigal` stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "SoundStream": "madrigal.soundstream.codec",
    "AudioLMSoundStream": "madrigal.soundstream.codec",
    "MusicLMSoundStream": "madrigal.soundstream.codec",
    "SoundStreamTrainer": "madrigal.soundstream.trainer",
    "EncodecWrapper": "madrigal.tokenizers.encodec",
    "DACWrapper": "madrigal.tokenizers.dac",
    "HubertWithKmeans": "madrigal.tokenizers.huggingface",
    "FairseqVQWav2Vec": "madrigal.tokenizers.huggingface",
    "MelKmeans": "madrigal.tokenizers.mel_kmeans",
    "MaskedPrediction": "madrigal.tokenizers.masked_prediction",
    "load_codec": "madrigal.tokenizers.loading",
    "load_tokenizer": "madrigal.tokenizers.loading",
    "SemanticTransformer": "madrigal.audiolm.semantic",
    "CoarseTransformer": "madrigal.audiolm.coarse",
    "FineTransformer": "madrigal.audiolm.fine",
    "SemanticTransformerWrapper": "madrigal.audiolm.wrappers",
    "CoarseTransformerWrapper": "madrigal.audiolm.wrappers",
    "FineTransformerWrapper": "madrigal.audiolm.wrappers",
    "SemanticTransformerTrainer": "madrigal.audiolm.training",
    "CoarseTransformerTrainer": "madrigal.audiolm.training",
    "FineTransformerTrainer": "madrigal.audiolm.training",
    "AudioLM": "madrigal.audiolm.pipeline",
    "load_audiolm": "madrigal.audiolm.loading",
    "AudioConditionerBase": "madrigal.audiolm.condition",
    "get_embeds": "madrigal.audiolm.tokens",
    "TextToSemantic": "madrigal.speartts.model",
    "SpeechSpeechPretrainWrapper": "madrigal.speartts.wrappers",
    "SemanticToTextWrapper": "madrigal.speartts.wrappers",
    "TextToSemanticWrapper": "madrigal.speartts.wrappers",
    "SpeechSpeechPretrainer": "madrigal.speartts.training",
    "SemanticToTextTrainer": "madrigal.speartts.training",
    "TextToSemanticTrainer": "madrigal.speartts.training",
    "MockDataset": "madrigal.speartts.pairs",
    "SemanticToTextDatasetGenerator": "madrigal.speartts.generated",
    "GeneratedAudioTextDataset": "madrigal.speartts.generated",
    "TextToSpeech": "madrigal.speartts.speech",
    "load_text_to_speech": "madrigal.speartts.loading",
    "MelFeatures": "madrigal.tokenizers.mel_features",
    "MelVoco": "madrigal.voicebox.features",
    "load_features": "madrigal.voicebox.features",
    "CodecFeatures": "madrigal.voicebox.codec_features",
    "EncodecVoco": "madrigal.voicebox.codec_features",
    "Vocoder": "madrigal.voicebox.vocoder.model",
    "VocoderTrainer": "madrigal.voicebox.vocoder.trainer",
    "VoiceBox": "madrigal.voicebox.model",
    "ConditionalFlowMatcherWrapper": "madrigal.voicebox.flow",
    "VoiceBoxTrainer": "madrigal.voicebox.training",
    "VoiceBoxDistiller": "madrigal.voicebox.distill",
    "VoiceboxSpeech": "madrigal.voicebox.speech",
    "load_voicebox": "madrigal.voicebox.loading",
    "Aligner": "madrigal.voicebox.aligner",
    "AlignerTrainer": "madrigal.voicebox.aligner_training",
    "DurationPredictor": "madrigal.voicebox.durations",
    "DurationPredictorTrainer": "madrigal.voicebox.durations_training",
    "AudioSpectrogramTransformer": "madrigal.musiclm.audio_transformer",
    "TextTransformer": "madrigal.musiclm.text_transformer",
    "SoftmaxContrastiveLearning": "madrigal.layers.contrastive",
    "SigmoidContrastiveLearning": "madrigal.layers.contrastive",
    "MultiLayerContrastiveLoss": "madrigal.layers.contrastive",
    "MuLaN": "madrigal.musiclm.mulan",
    "MuLaNTrainer": "madrigal.musiclm.mulan_trainer",
    "load_mulan": "madrigal.musiclm.mulan",
    "MuLaNEmbedQuantizer": "madrigal.musiclm.quantizer",
    "MuLaNEmbedQuantizerTrainer": "madrigal.musiclm.quantizer_training",
    "MusicLM": "madrigal.musiclm.music",
    "load_embed_quantizer": "madrigal.musiclm.loading",
    "load_musiclm": "madrigal.musiclm.loading",
    "VQGanVAE": "madrigal.muse.vae",
    "VQGanVAETrainer": "madrigal.muse.vae_trainer",
    "MaskGitTransformer": "madrigal.muse.maskgit_transformer",
    "TokenCritic": "madrigal.muse.maskgit_transformer",
    "SelfCritic": "madrigal.muse.maskgit_transformer",
    "MaskGit": "madrigal.muse.maskgit",
    "MaskGitTrainer": "madrigal.muse.maskgit_training",
    "TokenCriticTrainer": "madrigal.muse.maskgit_training",
    "Muse": "madrigal.muse.muse",
    "load_muse": "madrigal.muse.loading",
    "Sampling": "madrigal.layers.sampling",
    "SoundDataset": "madrigal.data.dataset",
    "TokenDataset": "madrigal.data.token_dataset",
    "UserError": "madrigal.errors",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'madrigal' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
