"""Which of a transcript's words fall into holes of a recording, and when they would be said there.

Frames of a hole tell nothing, so all symbols fit them alike: the symbols that the frames around do not need are those
of the hole. To these frames it is as if the sound beside the hole went on in it: an edge, or silence, would draw
symbols to it that are like one. How long each lasts in it is what the duration predictor says, stretched to the room
that there is.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.lasting import shared_out
from madrigal.voicebox.monotonic import best_path
from madrigal.voicebox.speech import VoiceboxSpeech


def in_their_holes(
    speech: VoiceboxSpeech,
    wave: Tensor,
    transcript: str,
    holes: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
    how: Drawing | None = None,
    name: str = "The recording",
) -> tuple[Tensor, Tensor]:
    """Symbols and durations [symbols] of a wave [samples] whose frames first … last-1 of each hole cannot be heard."""
    aligner, device = speech.aligner, speech.device
    aligner.check_length(len(wave), name)
    symbols = torch.tensor(aligner.symbols.encode(transcript))
    mels = aligner.mels(wave[None].to(device))
    for first, last in holes:
        _carry_on(mels[0], first, last)
    frames, lengths = (torch.tensor([size], device=device) for size in (mels.shape[1], len(symbols)))
    log_probs = aligner(mels, symbols[None].to(device), frames=frames, lengths=lengths)
    for first, last in holes:
        log_probs[:, first:last] = 0.0
    durations = best_path(log_probs, lengths, frames, [name])[0].cpu()
    for first, last in holes:
        durations = _respread(speech, symbols, durations, (first, last), seed, how)
    return symbols, durations


def _carry_on(mels: Tensor, first: int, last: int) -> None:
    """Fill frames first … last-1 of log-mels [frames, n_mels] with the last before them, and the next behind them."""
    before, behind = mels[max(0, first - 1)].clone(), mels[min(last, len(mels) - 1)].clone()
    middle = 0 if first == 0 else len(mels) if last >= len(mels) else (first + last) // 2
    mels[first : max(first, middle)] = before
    mels[max(first, middle) : last] = behind


def _respread(
    speech: VoiceboxSpeech, symbols: Tensor, durations: Tensor, hole: tuple[int, int], seed: int, how: Drawing | None
) -> Tensor:
    """The durations with those of the hole's symbols as they are usually said; what is heard outside of it stays."""
    ends = durations.cumsum(0)
    starts = ends - durations
    inside = (starts < hole[1]) & (ends > hole[0])
    # The first and the last may begin before the hole and end behind it, and keep what is heard of them.
    least = ((hole[0] - starts).clamp(min=0) + (ends - hole[1]).clamp(min=0)).clamp(min=1)
    known = durations.masked_fill(inside, 0)
    usual = speech.timed([symbols], [known], seeds=[seed], how=how)[0]
    result = durations.clone()
    kept = least[inside] - 1
    wish = (usual[inside] - kept).clamp(min=1).double()
    result[inside] = kept + shared_out(wish, int((durations[inside] - kept).sum()))
    return result
