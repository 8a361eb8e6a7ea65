"""Features by name: of a vocoder's run, or of a codec."""

from pathlib import Path

from madrigal.errors import UserError
from madrigal.tokenizers.mel_config import MelConfig
from madrigal.tokenizers.mel_features import Features, MelFeatures


def load_features(name: str | Path) -> Features:
    """Of a vocoder's run or folder, with its statistics; or the latents of a codec by name, not yet fitted."""
    from madrigal.voicebox.vocoder.model import Vocoder, is_vocoder

    if is_vocoder(name):
        return Vocoder.from_pretrained(name, discriminators=False).features()
    from madrigal.tokenizers.codecs import load_codec
    from madrigal.voicebox.codec_features import CodecFeatures

    return CodecFeatures(load_codec(name))


def MelVoco(
    *,
    n_mels: int = 100,
    sampling_rate: int = 24000,
    n_fft: int = 1024,
    hop_length: int = 256,
    vocoder: str | Path | None = None,
) -> MelFeatures:
    """The older name of log-mels; `vocoder` is a run or folder of one, without which Griffin-Lim speaks."""
    if vocoder is not None:
        found = load_features(vocoder)
        if isinstance(found, MelFeatures):
            return found
        raise UserError(f"{vocoder} is no vocoder; name the run of one.")
    return MelFeatures(MelConfig(n_mels=n_mels, target_sample_hz=sampling_rate, n_fft=n_fft, hop=hop_length))
