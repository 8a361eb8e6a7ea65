"""Other words in a recording, and holes that are filled in, in the voice that is around them.

What is to be made is a hole in the features of the recording; what is around it is given. Of what comes out only the
hole is taken, and it is laid into the recording with the rest untouched (`mending.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seed_for
from madrigal.errors import UserError
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.expand import expand
from madrigal.voicebox.hidden_words import in_their_holes
from madrigal.voicebox.mending import Mend, Sound, Span, check_spans, cut_out, frames_of, mended, samples_of
from madrigal.voicebox.reach import reach_of, window_reach
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.transcript import change_of, with_words

CONTEXT_SECONDS = 5.0
"""So much on each side of a hole is given: about as much as the model sees while it learns."""
SOUNDED = 32
"""Frames beside a hole that are decoded with it, so that the hole sounds as a part of them."""


@dataclass(frozen=True)
class Edited:
    """A mended recording: where it was changed (`old`, in its own seconds), where the new sound is, and its text."""

    sound: Sound
    old: list[Span]
    new: list[Span]
    text: str | None


@dataclass(frozen=True)
class Hole:
    """Samples start … stop-1 of a recording, for which `samples` come; frames first … last-1 are made for them."""

    start: int
    stop: int
    samples: int
    first: int
    last: int


class Heard(NamedTuple):
    """A recording as the model hears it: wave [samples], features [frames, dim], and how much louder than it is."""

    wave: Tensor
    features: Tensor
    gain: float


class Editor:
    """Edits recordings with a model that speaks; `drawing` says how its flow is followed, else as it always is."""

    def __init__(self, speech: VoiceboxSpeech, *, seed: int = 0, drawing: Drawing | None = None) -> None:
        self.speech, self.seed, self.how = speech, seed, drawing or speech.drawing
        config = speech.aligner.config
        # Frames beside a hole that hear into it, and are made anew with it.
        self.reach = max(reach_of(speech.features), window_reach(config.n_fft, config.hop))

    @torch.no_grad()
    def replace(self, sound: Sound, transcript: str, old: str, new: str, name: str = "The recording") -> Edited:
        """The recording with the words `new` in the place of `old`; `transcript` is all that is said in it."""
        text = with_words(transcript, old, new)
        aligner, heard = self.speech.aligner, self._heard(sound)
        symbols, durations, _ = aligner.align_text(heard.wave.to(self.speech.device), transcript, name)
        symbols, durations = symbols.cpu(), durations.cpu()
        after = torch.tensor(aligner.symbols.encode(text))
        change = change_of(symbols.tolist(), after.tolist(), aligner.symbols.silence)
        unknown = torch.zeros(change.new_stop - change.start, dtype=torch.int64)
        known = torch.cat((durations[: change.start], unknown, durations[change.stop :]))
        found = torch.where(known > 0, known, self.speech.timed([after], [known], seeds=[self.seed], how=self.how)[0])
        first = int(durations[: change.start].sum())
        old_last = first + int(durations[change.start : change.stop].sum())
        last = first + int(found[change.start : change.new_stop].sum())
        empty = torch.zeros(last - first, heard.features.shape[1])
        features = torch.cat((heard.features[:first], empty, heard.features[old_last:]))
        start, stop, end = (self._sample(frame, sound) for frame in (first, old_last, last))
        hole = Hole(start, min(stop, len(sound.data)), end - start, max(0, first - self.reach), last + self.reach)
        heard = heard._replace(features=features)
        return self._edited(sound, heard, expand(after[None], found[None])[0], [hole], text)

    @torch.no_grad()
    def fill(
        self, sound: Sound, spans: Sequence[Span], transcript: str | None = None, name: str = "the recording"
    ) -> Edited:
        """The recording with what was in some spans made anew; with its `transcript`, saying what was said there."""
        if not spans:
            return Edited(sound, [], [], transcript)
        check_spans(spans, sound.seconds, name)
        rate, hop = self.speech.sample_rate, self.speech.features.hop
        holes = []
        for span in spans:
            start, stop = samples_of(span, sound)
            first, last = frames_of(start, stop, rate=sound.rate, sample_rate=rate, hop=hop, reach=self.reach)
            holes.append(Hole(start, stop, stop - start, first, last))
        heard = self._heard(sound, holes)
        ids = torch.full((len(heard.features),), PAD)
        if transcript is not None:
            places = [(hole.first, min(hole.last, len(ids))) for hole in holes]
            symbols, durations = in_their_holes(
                self.speech, heard.wave, transcript, places, seed=self.seed, how=self.how, name=name
            )
            ids = expand(symbols[None], durations[None])[0]
        return self._edited(sound, heard, ids, holes, transcript)

    def _edited(self, sound: Sound, heard: Heard, ids: Tensor, holes: Sequence[Hole], text: str | None) -> Edited:
        with eval_mode(self.speech):
            mends = [self._mend(sound, heard, ids, _hidden(heard.features, holes), hole) for hole in holes]
        longer, old, new = 0, [], []
        for hole in holes:
            old.append((hole.start / sound.rate, hole.stop / sound.rate))
            new.append(((hole.start + longer) / sound.rate, (hole.start + longer + hole.samples) / sound.rate))
            longer += hole.samples - (hole.stop - hole.start)
        return Edited(mended(sound, mends), old, new, text)

    def _mend(self, sound: Sound, heard: Heard, ids: Tensor, hidden: Tensor, hole: Hole) -> Mend:
        """What comes in the place of one hole."""
        speech, near = self.speech, round(CONTEXT_SECONDS * self.speech.frame_rate)
        begin, end = max(0, hole.first - near), min(len(heard.features), hole.last + near)
        filled = self.how.fill(
            speech.voicebox,
            [end - begin],
            context=heard.features[None, begin:end],
            context_mask=~hidden[None, begin:end],
            ids=ids[None, begin:end],
            seed=[seed_for(self.seed, "hole", hole.first)],
        ).features[0]
        left = max(begin, hole.first - SOUNDED)
        right = min(end, hole.last + SOUNDED)
        wave = speech.features.decode(filled[None, left - begin : right - begin])[0].cpu()
        piece = cut_out(
            wave,
            first_frame=left,
            start=hole.start,
            samples=hole.samples,
            rate=sound.rate,
            sample_rate=speech.sample_rate,
            hop=speech.features.hop,
        )
        return Mend(hole.start, hole.stop, piece / heard.gain)

    def _heard(self, sound: Sound, holes: Sequence[Hole] = ()) -> Heard:
        """The recording as the model hears it, filled up to whole frames; of what is in the holes it hears nothing."""
        if sound.seconds < 0.5:
            raise UserError("The recording is shorter than half a second: there is too little to go by.")
        data = sound.data.copy()
        for hole in holes:
            data[hole.start : hole.stop] = 0
        wave, hop = replace(sound, data=data).mono(self.speech.sample_rate), self.speech.features.hop
        wave = F.pad(wave, (0, -len(wave) % hop))
        features = self.speech.features.encode(wave[None])[0].cpu()
        gain = self.speech.gain(features[~_hidden(features, holes)])
        louder = features if gain == 1.0 else self.speech.features.encode(gain * wave[None])[0].cpu()
        return Heard(gain * wave, louder, gain)

    def _sample(self, frame: int, sound: Sound) -> int:
        """The sample of the recording at which a frame begins."""
        return round(frame * self.speech.features.hop * sound.rate / self.speech.sample_rate)


def _hidden(features: Tensor, holes: Sequence[Hole]) -> Tensor:
    """Bool [frames]: those that are made anew."""
    hidden = torch.zeros(len(features), dtype=torch.bool)
    for hole in holes:
        hidden[hole.first : hole.last] = True
    return hidden
