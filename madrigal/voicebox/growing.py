"""The first sentence of a stream in parts that grow, so that it is heard before all of it is made.

    voice | part         | a little more      made first; what is beyond the part is thrown away
    voice | part | part            | a little more
    voice | part | part | the rest

The rhythm is that of the whole sentence. Every part is made as a hole behind what was said so far, which the model
has learned to fill; the sound of two parts is faded into each other.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.engine.randomness import seed_for
from madrigal.tokenizers.mel_features import Features, MelFeatures
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.expand import crop
from madrigal.voicebox.speech import Line, VoiceboxSpeech
from madrigal.voicebox.voice import Voice

PARTS_SECONDS = (0.3, 1.4)
"""Of the first parts at the least: each sounds for about as long as the next one takes to be made."""
AHEAD_SECONDS = 0.5
"""So much more than a part is made: its end is said as something that goes on, and models know no holes so short."""
PROMPT_SECONDS = 0.9
"""So much of the voice stands before the first parts, which have to come soon; before the last one stands all of it."""
REST_SECONDS = 0.4
"""Less than that is not worth a part of its own."""
DURATION_STEPS = 3
"""Of the rhythm of such a sentence."""
FADE_FRAMES = 2


def can_grow(features: Features) -> bool:
    """Whether sound can be made of a beginning, and gone on with."""
    return isinstance(features, MelFeatures) and features.vocoder is not None


def in_parts(speech: VoiceboxSpeech, line: Line, voice: Voice, how: Drawing, seed: int) -> Iterator[Tensor]:
    """The sound [samples] of a line, part by part."""
    rate, silence = speech.frame_rate, speech.aligner.symbols.silence
    made, joint = torch.zeros(0, speech.features.dim), _Joint(speech.features)
    cuts = parts_of(line, silence, rate)
    for number, last in enumerate(cuts):
        first, until = len(made), min(line.frames, last + round(AHEAD_SECONDS * rate))
        before = voice if last == line.frames else _end_of(voice, round(PROMPT_SECONDS * rate), silence)
        given = _followed(before, made, crop(line.symbols, line.durations, 0, first))
        asked = Line(*crop(line.symbols, line.durations, first, until))
        row = speech.features_of([asked], given, how, [seed_for(seed, "part", number)])[0]
        made = torch.cat((made, row[: last - first].cpu()))
        yield joint.sound(made, is_last=last == line.frames)


def parts_of(line: Line, silence: int, rate: float) -> list[int]:
    """The frames at which parts of a line end, between words where there is such a place soon."""
    ends = line.durations.cumsum(0)
    starts = (ends - line.durations).tolist()
    pauses = [start for start, symbol in zip(starts, line.symbols.tolist(), strict=True) if symbol == silence]
    cuts: list[int] = []
    for seconds in PARTS_SECONDS:
        least = (cuts[-1] if cuts else 0) + round(seconds * rate)
        near = [place for place in pauses if least <= place <= least + round(seconds * rate)]
        place = next(iter(near), None) or next((start for start in starts if start >= least), line.frames)
        if line.frames - place < REST_SECONDS * rate:
            break
        cuts.append(place)
    return [*cuts, line.frames]


def _end_of(voice: Voice, frames: int, silence: int) -> Voice:
    """The last frames of what a voice says, without the silence behind it, which tells nothing of the voice."""
    end = len(voice.features)
    if voice.symbols is None or voice.durations is None or not end:
        return Voice(voice.features[max(0, end - frames) :], voice.fingerprint)
    end -= int(voice.durations[-1]) if int(voice.symbols[-1]) == silence else 0
    start = max(0, end - frames)
    said = crop(voice.symbols, voice.durations, start, end)
    return Voice(voice.features[start:end], voice.fingerprint, *said)


def _followed(voice: Voice, made: Tensor, said: tuple[Tensor, Tensor]) -> Voice:
    """The voice, and behind it what it has said so far."""
    if not len(made):
        return voice
    symbols, durations = said
    before, lasting = torch.tensor([PAD]), torch.tensor([len(voice.features)])
    if voice.symbols is not None and voice.durations is not None:
        before, lasting = voice.symbols, voice.durations
    sounds = torch.cat((voice.features, made))
    return Voice(sounds, voice.fingerprint, torch.cat((before, symbols)), torch.cat((lasting, durations)))


class _Joint:
    """Sound of features that become more and more; the end of one part is faded into the beginning of the next."""

    def __init__(self, features: Any) -> None:
        self._features, self._vocoder = features, features.vocoder
        self._sounded = 0
        self._held: Tensor | None = None

    def sound(self, made: Tensor, *, is_last: bool) -> Tensor:
        """What is new in features [frames, dim], but for a little that is held back until more is known."""
        hop, first = self._features.hop, max(0, self._sounded - self._vocoder.context)
        raw = self._features.denormalise(made[None].to(self._features.mean.device))
        wave: Tensor = self._vocoder(raw[:, first:], first)[0, (self._sounded - first) * hop :]
        if self._held is not None:
            share = torch.linspace(0, 1, len(self._held), device=wave.device)
            wave = torch.cat((torch.lerp(self._held, wave[: len(self._held)], share), wave[len(self._held) :]))
        kept = 0 if is_last else FADE_FRAMES * hop
        self._held = wave[len(wave) - kept :]
        self._sounded = len(made) - FADE_FRAMES
        return wave[: len(wave) - kept]
