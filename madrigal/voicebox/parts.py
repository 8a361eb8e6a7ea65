"""The parts of a voicebox, which fit each other, and the voices that they hear."""

from pathlib import Path

import torch
from torch import Tensor

from madrigal.data.audio import mix_channels, probe, read, resample
from madrigal.errors import UserError
from madrigal.speaking.script import transcript_of
from madrigal.speaking.speech import Speaker
from madrigal.tokenizers.mel_features import Features
from madrigal.voicebox.aligner import MOST_SECONDS, Aligner
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.expand import crop
from madrigal.voicebox.keywords import check_statistics
from madrigal.voicebox.levels import gain_for, level_of
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.voice import Voice

PROMPT_SECONDS = 3.0
"""So much of a prompt is heard: enough for its voice; all of it is computed with every sentence."""
BEHIND_SECONDS = 0.5
"""So much behind it is read too, so that its last frames hear what follows."""

AnyVoice = Voice | str | Path | Tensor | None


class VoiceboxParts(Speaker):
    """Flow, features, durations and aligner of one voicebox.

    `voices` are files of voices by name; without a voice the first of them is taken, and without any the model's own
    choice. `drawing` is how the flow is followed unless a call says otherwise.
    """

    def __init__(
        self,
        voicebox: VoiceBox,
        *,
        features: Features,
        durations: DurationPredictor,
        aligner: Aligner,
        voices: dict[str, Path] | None = None,
        drawing: Drawing | None = None,
    ) -> None:
        super().__init__()
        self.voicebox, self.features, self.durations, self.aligner = voicebox, features, durations, aligner
        self.voices, self.drawing = voices or {}, drawing or Drawing()
        self._levels: list[float] | None = None
        self._check_fit()
        self.requires_grad_(False).eval()

    @property
    def sample_rate(self) -> int:
        return self.features.sample_rate

    @property
    def device(self) -> torch.device:
        return self.voicebox.device

    @property
    def frame_rate(self) -> float:
        return self.features.frame_rate

    # The voice.

    def voice(self, voice: AnyVoice = None, rate: int | None = None, text: str | None = None) -> Voice:
        """A voice by its name, from a file, or from a wave [samples] or [channels, samples] of this `rate`.

        `text` is what is said in all of it; a file may have it beside it, as .txt. Without, or where a file is too long
        to be aligned with a text that stands beside it, the voice is heard all the same.
        """
        if not isinstance(voice, Tensor):
            self._check_acts("voice_rate", rate, "a wave")
        if not isinstance(voice, Tensor) and (isinstance(voice, Voice | None) or str(voice) in self.voices):
            self._check_acts("voice_text", text, "an audio file or a wave")
        if isinstance(voice, Voice):
            return self._fitting(voice, "this voice")
        if voice is None:
            return self.voice(next(iter(self.voices))) if self.voices else self.nobody()
        if isinstance(voice, Tensor):
            wave = resample(
                mix_channels(voice.reshape(-1, voice.shape[-1]), 1), rate or self.sample_rate, self.sample_rate
            )
            return self._heard(wave[0], text, "The recording")
        if str(voice) in self.voices:
            return self._fitting(Voice.load(self.voices[str(voice)]), str(voice))
        if not Path(voice).is_file():
            known = f"; its voices are {', '.join(self.voices)}" if self.voices else ""
            raise UserError(f"There is no voice and no audio file {voice}{known}.")
        said = transcript_of(Path(voice), text)
        if text is None and probe(voice).duration > MOST_SECONDS:
            said = None
        samples = self._prompt_samples if said is None else None
        return self._heard(read(voice, frames=samples, sample_rate=self.sample_rate, channels=1)[0], said, str(voice))

    def nobody(self) -> Voice:
        """No voice: the model takes any."""
        return Voice(torch.zeros(0, self.features.dim), self.features.fingerprint())

    def gain(self, features: Tensor) -> float:
        """What makes a wave of these features [frames, dim] about as loud as what was learned; 1 where it is so."""
        if self._levels is None:
            some = [Voice.load(file) for file in list(self.voices.values())[:8]]
            # A file from elsewhere may lie among them; who asks for that voice is told.
            own = [voice for voice in some if voice.fingerprint == self.features.fingerprint()]
            self._levels = [level_of(voice.features, self.features) for voice in own]
        return gain_for(features, self.features, self._levels)

    @property
    def _prompt_samples(self) -> int:
        return round((PROMPT_SECONDS + BEHIND_SECONDS) * self.sample_rate)

    def _heard(self, wave: Tensor, text: str | None, name: str) -> Voice:
        """Of a long wave [samples] only the beginning is heard; all of it, if it has a text, is aligned with that."""
        wave = wave.to(self.device)
        begin = wave[: self._prompt_samples]
        gain = self.gain(self.features.encode(begin[None])[0])
        heard = self.features.encode(gain * begin[None])[0].cpu()
        if len(heard) < self.frame_rate / 5:
            raise UserError(f"{name} is shorter than 0.2 seconds; give some seconds of speech to take a voice from.")
        about = {"text": text} if text else None
        voice = Voice(heard, self.features.fingerprint(), about=about)
        if text:
            symbols, durations, _ = self.aligner.align_text(gain * wave, text, name)
            symbols, durations = crop(symbols.cpu(), durations.cpu(), 0, len(heard))
            voice = Voice(heard, voice.fingerprint, symbols, durations, about)
        return voice.first(round(PROMPT_SECONDS * self.frame_rate), self.aligner.symbols.silence)

    def _check_acts(self, option: str, value: object, kind: str) -> None:
        if value is not None:
            raise UserError(f"{option} is for {kind} to take a voice from, and none is given: leave it out.")

    def _fitting(self, voice: Voice, name: str) -> Voice:
        if voice.fingerprint != self.features.fingerprint():
            raise UserError(f"The voice {name} was made for other features: make it anew from its recording.")
        return voice

    def _check_fit(self) -> None:
        """All parts have the same frames, and the same symbols."""
        config, heard = self.aligner.config, self.features
        size = self.aligner.symbols.size
        claims = [
            ("the flow's dim_in", self.voicebox.config.dim_in, "the features' dimension", heard.dim),
            (
                "the flow's num_cond_tokens",
                self.voicebox.config.num_cond_tokens,
                "the aligner's number of symbols",
                size,
            ),
            ("the durations' num_symbols", self.durations.config.num_symbols, "the aligner's number of symbols", size),
            ("the aligner's sample_rate", config.sample_rate, "the features'", heard.sample_rate),
            ("the aligner's hop", config.hop, "the features'", heard.hop),
        ]
        for one, value, other, wanted in claims:
            if value != wanted:
                raise UserError(f"The parts of a voicebox do not fit: {one} is {value}, and {other} is {wanted}.")
        check_statistics(heard, self.voicebox.mean, self.voicebox.std)
