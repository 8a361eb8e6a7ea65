"""Codecs behind one interface: waves to codes [batch, frames, quantizers] and back.

Our SoundStream has the interface itself; those of other people are wrapped here and in `encodec.py` and `dac.py`.
"""

from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.audio import resample
from madrigal.data.tokens import PAD
from madrigal.engine.pretrained import locate
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.foreign import foreign_config, foreign_model
from madrigal.tokenizers.mel_codec_config import MelCodecConfig


class Codec(Protocol):
    """What everybody may ask of a codec. Codes are level-major: column = level * rq_groups + group."""

    @property
    def target_sample_hz(self) -> int: ...

    @property
    def downsample_factor(self) -> int: ...

    @property
    def frame_rate(self) -> float: ...

    @property
    def codebook_size(self) -> int: ...

    @property
    def num_quantizers(self) -> int: ...

    @property
    def rq_groups(self) -> int: ...

    @property
    def channels(self) -> int: ...

    def fingerprint(self) -> str: ...

    def frames(self, lengths: Tensor) -> Tensor:
        """Frames [batch] of so many samples [batch]."""
        ...

    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Waves [batch, channels, samples] -> codes [batch, frames, quantizers], -1 behind a row's own frames."""
        ...

    def decode_from_codebook_indices(self, quantized_indices: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] -> waves [batch, channels, samples]."""
        ...

    def stream_decoder(self) -> Any:
        """An object with `push(codes) -> wave` and `flush() -> wave`; None where the codec cannot stream."""
        ...


class ForeignCodec(nn.Module):
    """A codec of transformers, read on first use; each row is coded alone, so that its neighbours change nothing."""

    kind: ClassVar[str]
    model_class: ClassVar[str]
    known: ClassVar[dict[str, dict[str, Any]]] = {}
    """What the config.json of public checkpoints says, so that a name alone needs no network."""
    rq_groups = 1

    def __init__(self, checkpoint: str | Path) -> None:
        super().__init__()
        self.checkpoint = str(checkpoint)
        self._facts: dict[str, Any] | None = foreign_config(checkpoint) or self.known.get(self.checkpoint)
        self.model: Any = None

    # What a wrapper says of its codec.

    @property
    def downsample_factor(self) -> int:
        raise NotImplementedError

    @property
    def num_quantizers(self) -> int:
        raise NotImplementedError

    @property
    def channels(self) -> int:
        return 1

    def _encode(self, wave: Tensor) -> Tensor:
        """[1, channels, a multiple of downsample_factor] -> codes [frames, quantizers]."""
        raise NotImplementedError

    def _decode(self, codes: Tensor) -> Tensor:
        """[batch, frames, quantizers] -> [batch, channels, samples]."""
        raise NotImplementedError

    # What they share.

    @property
    def loaded(self) -> Any:
        """The model, in eval mode; read when it is first needed."""
        if self.model is None:
            self.model = foreign_model(self.model_class, self.checkpoint, f"the codec {self.kind}")
        return self.model

    @property
    def facts(self) -> dict[str, Any]:
        if self._facts is None:
            self._facts = self.loaded.config.to_dict()
        return self._facts

    @property
    def target_sample_hz(self) -> int:
        return int(self.facts["sampling_rate"])

    @property
    def codebook_size(self) -> int:
        return int(self.facts["codebook_size"])

    @property
    def frame_rate(self) -> float:
        return self.target_sample_hz / self.downsample_factor

    @property
    def seq_len_multiple_of(self) -> int:
        return self.downsample_factor

    def fingerprint(self) -> str:
        options = {"kind": self.kind, "quantizers": self.num_quantizers}
        return fingerprint_of(options, self.loaded.state_dict())

    def frames(self, lengths: Tensor) -> Tensor:
        return -(-lengths // self.downsample_factor)

    @torch.no_grad()
    def tokenize(self, audio: Tensor, lengths: Tensor | None = None) -> Tensor:
        waves = self._batched(audio)
        self.loaded.eval()
        sizes = [waves.shape[-1]] * len(waves) if lengths is None else [int(length) for length in lengths]
        rows = []
        for wave, size in zip(waves, sizes, strict=True):
            wave = F.pad(wave[None, :, :size].float(), (0, -size % self.downsample_factor))
            empty = torch.zeros(0, self.num_quantizers, dtype=torch.long, device=wave.device)
            rows.append(self._encode(wave) if size else empty)
        return pad_sequence(rows, batch_first=True, padding_value=PAD)

    @torch.no_grad()
    def decode_from_codebook_indices(self, quantized_indices: Tensor) -> Tensor:
        if quantized_indices.ndim != 3:
            raise ValueError(
                f"Codes have the shape [batch, frames, quantizers]; these have {list(quantized_indices.shape)}."
            )
        self.loaded.eval()
        samples = quantized_indices.shape[1] * self.downsample_factor
        wave = self._decode(quantized_indices.long())[..., :samples]
        return F.pad(wave, (0, samples - wave.shape[-1]))

    def stream_decoder(self) -> None:
        """These codecs hear the future, or have no state that could be kept: there is none."""

    def forward(
        self, x: Tensor, input_sample_hz: int | None = None, return_encoded: bool = False
    ) -> tuple[Tensor | None, Tensor, None]:
        """As older scripts call it: embeddings [batch, frames, dim] where asked for, codes, nothing."""
        if input_sample_hz is not None:
            x = resample(x, input_sample_hz, self.target_sample_hz)
        codes = self.tokenize(x)
        return (self.get_emb_from_indices(codes) if return_encoded else None), codes, None

    def get_emb_from_indices(self, indices: Tensor) -> Tensor:
        """Codes [batch, frames, quantizers] -> the sum of their embeddings [batch, frames, dim]."""
        raise NotImplementedError

    def _batched(self, audio: Tensor) -> Tensor:
        if audio.ndim == 2 and self.channels == 1:
            audio = audio[:, None]
        if audio.ndim != 3 or audio.shape[1] != self.channels:
            raise ValueError(
                f"This codec takes waves of the shape [batch, {self.channels}, samples]; these are {list(audio.shape)}."
            )
        return audio


def load_codec(name: str | Path) -> Any:
    """A codec by its shipped name, run, folder or hub name; `NAME@6` is an EnCodec at 6 kbps."""
    base, at, rate = str(name).rpartition("@")
    place, kbps = (base, rate) if at and not Path(name).exists() else (str(name), None)
    # A run has its config.json in its checkpoints, and is never somebody else's.
    config = {} if (Path(place) / "checkpoints").is_dir() else foreign_config(place) or {}
    kind = config.get("model_type") or next((kind for kind in ("encodec", "dac") if kind in _hub_name(place)), None)
    if kind == "encodec":
        from madrigal.tokenizers.encodec import EncodecWrapper

        return EncodecWrapper(bandwidth=_number(kbps, str(name)), checkpoint=place)
    if kbps is not None:
        raise UserError(f"{name}: only an EnCodec is loaded at a bandwidth; leave @{kbps} out.")
    if kind == "dac":
        from madrigal.tokenizers.dac import DACWrapper

        return DACWrapper(checkpoint=place)
    folder = locate(place)
    kind = (foreign_config(folder) or {}).get("kind")
    if kind == MelCodecConfig.model_fields["kind"].default:
        from madrigal.tokenizers.mel_codec import MelCodec

        return MelCodec.from_pretrained(folder)
    if kind is not None:
        raise UserError(f"{place} is a semantic tokenizer of the kind {kind}, and no codec.")
    from madrigal.soundstream.codec import SoundStream

    return SoundStream.from_pretrained(folder, discriminators=False).eval()


def _hub_name(name: str) -> str:
    is_hub = name.count("/") == 1 and not name.startswith((".", "/")) and not Path(name).exists()
    return name.lower() if is_hub else ""


def _number(text: str | None, name: str) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise UserError(
            f"{name}: {text!r} is no number of kbps; write for example facebook/encodec_24khz@6."
        ) from error
