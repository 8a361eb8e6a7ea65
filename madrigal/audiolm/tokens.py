"""A batch's tokens for a stage: read from the batch where it has them, made from its audio where it has not."""

from typing import Any

import torch
from torch import Tensor, nn

from madrigal.audiolm.packing import Stream
from madrigal.audiolm.semantic import semantic_stream
from madrigal.data.audio import mix_channels, resample, resampled_length
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.tokenizers.repeats import unique_consecutive

Batch = dict[str, Any]


@torch.no_grad()
def semantic_of(batch: Batch, tokenizer: Any, *, codebook_size: int, unique: bool) -> Stream:
    """Semantic tokens [batch, time, 1]; with `unique` a token that repeats is taken once."""
    if "semantic" in batch:
        ids, lengths = batch["semantic"], batch["semantic_lengths"]
    elif tokenizer is None:
        raise UserError(
            "The batches hold no semantic tokens: give the trainer a tokenizer (wav2vec), or tokens on disk."
        )
    else:
        audio, lengths = audio_at(batch, tokenizer.target_sample_hz)
        ids, lengths = tokenizer.tokenize(audio, lengths)
    _check_ids("semantic", ids, codebook_size)
    if unique:
        ids, lengths = unique_consecutive(ids, lengths)
    return semantic_stream(ids, lengths, ends_of(batch, len(ids), ids.device))


@torch.no_grad()
def acoustic_of(
    batch: Batch, codec: Any, quantizers: int, *, codebook_size: int, heard_at: int | None = None
) -> Stream:
    """The codec's first `quantizers` codebooks [batch, frames, quantizers]; `heard_at` is the rate of "audio"."""
    if "acoustic" in batch:
        codes, lengths = batch["acoustic"], batch["acoustic_lengths"]
    elif codec is None:
        raise UserError("The batches hold no acoustic tokens: give the trainer a codec, or tokens on disk.")
    else:
        audio, samples = audio_at(batch, codec.target_sample_hz, heard_at or codec.target_sample_hz)
        if audio.shape[1] == 1:
            audio = audio.expand(-1, getattr(codec, "channels", 1), -1)
        codes, lengths = codec.tokenize(audio, samples), codec.frames(samples)
    if codes.shape[-1] < quantizers:
        raise UserError(f"The codec has {codes.shape[-1]} codebooks, and the stage wants {quantizers} of them.")
    codes = codes[..., :quantizers]
    _check_ids("acoustic", codes, codebook_size)
    return Stream(codes, lengths, ends_of(batch, len(codes), codes.device))


def ends_of(batch: Batch, size: int, device: torch.device) -> Tensor:
    """[batch] which rows hold the true end of their utterance; what was never cropped does."""
    ends = batch.get("reaches_end")
    return torch.ones(size, dtype=torch.bool, device=device) if ends is None else ends.to(device).bool()


def _check_ids(name: str, ids: Tensor, codebook_size: int) -> None:
    """The id after the last is the stage's end: it would be learned as one."""
    largest = int(ids.max()) if ids.numel() else PAD
    if largest >= codebook_size:
        raise UserError(
            f"The {name} tokens hold the id {largest}, and the stage knows ids below {codebook_size}: "
            "build it with the codebook size of what made them."
        )


def audio_at(batch: Batch, rate: int, heard_at: int | None = None) -> tuple[Tensor, Tensor]:
    """Audio [batch, channels, samples] and its lengths for a tokenizer of `rate`.

    A dataset gives "audio" at the first tokenizer's rate, and "audio_24000", say, at the codec's where it differs; a
    foreign one gives the second wave of its tuples as "audio_1". The codec says in `heard_at` at which rate "audio" is,
    and hears it resampled where there is no other wave.
    """
    for name in (f"audio_{rate}", "audio_1"):
        if heard_at is not None and name in batch:
            return batch[name], batch[name.replace("audio", "lengths")]
    if "audio" not in batch:
        raise UserError(f"The batches hold neither tokens nor audio, only {', '.join(batch)}.")
    audio, lengths = batch["audio"], batch["lengths"]
    if heard_at in (None, rate):
        return audio, lengths
    sizes = [resampled_length(length, heard_at, rate) for length in lengths.tolist()]
    return resample(audio, heard_at, rate), lengths.new_tensor(sizes)


FIELDS = ("audio", "audio_1", "semantic", "acoustic", "text", "text_embeds", "text_mask", "reaches_end")
"""What a batch may hold; a wave and tokens have lengths beside them."""

WAVES = {"raw_wave": "audio", "raw_wave_for_codec": "audio_1"}
"""What older scripts call the two waves."""


def batch_of(given: Batch, where: str) -> Batch:
    """A batch from keywords: waves [batch, samples] get their channel, and what has no lengths gets them."""
    batch = {WAVES.get(name, name): value for name, value in given.items()}
    lengths = {_lengths(name) for name in ("audio", "audio_1", "semantic", "acoustic")}
    for name in batch:
        if name not in FIELDS and name not in lengths:
            raise UserError(f"{where} knows no {name}; a batch may hold {', '.join((*WAVES, *FIELDS))}.")
    for name in [name for name in batch if name.startswith("audio")]:
        wave = batch[name] = batch[name][:, None] if batch[name].ndim == 2 else batch[name]
        batch.setdefault(_lengths(name), torch.full((len(wave),), wave.shape[-1], device=wave.device))
    for name in [name for name in ("semantic", "acoustic") if name in batch]:
        ids = batch[name] if batch[name].ndim == 2 else batch[name][..., 0]
        batch.setdefault(_lengths(name), (ids != PAD).sum(1))
    return batch


def _lengths(name: str) -> str:
    return name.replace("audio", "lengths") if name.startswith("audio") else f"{name}_lengths"


def heard_at(wave: Tensor, rate: int | None, wanted: int, channels: int = 1) -> Tensor:
    """A prompt [samples] or [channels, samples] at another rate and mixed to other channels: [channels, samples]."""
    wave = mix_channels(wave[None] if wave.ndim == 1 else wave, channels)
    return wave if rate in (None, wanted) else resample(wave, int(rate), wanted)


def get_embeds(
    embeddings: nn.Embedding, codes: Tensor, pad_id: int = PAD, return_mask: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Embeddings [..., dim] of padded ids [...], zero where there is padding; on demand with the mask of real ids."""
    mask = codes != pad_id
    embeds = embeddings(codes.where(mask, 0)).where(mask[..., None], 0.0)
    return (embeds, mask) if return_mask else embeds
