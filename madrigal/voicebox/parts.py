"""The parts of a voicebox, which fit each other, and the voices that they hear."""

from pathlib import Path

import torch
from torch import Tensor

from madrigal.data.audio import mix_channels, read, resample
from madrigal.errors import UserError
from madrigal.speaking.speech import Speaker
from madrigal.tokenizers.mel_features import Features
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.durations import DurationPredictor
from madrigal.voicebox.levels import gain_for, level_of
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.voice import Voice

PROMPT_SECONDS = 3.0
"""So much of a prompt is heard: enough for its voice; all of it is computed with every sentence."""

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
        """A voice by its name, from a file, or from a wave [samples] or [channels, samples].

        `text` is what is said in it; a file may have it beside it, as .txt. Without, the voice is heard all the same.
        """
        if isinstance(voice, Voice):
            return self._fitting(voice, "this voice")
        if voice is None:
            return self.voice(next(iter(self.voices))) if self.voices else self.nobody()
        if isinstance(voice, Tensor):
            wave = resample(
                mix_channels(voice.reshape(-1, voice.shape[-1]), 1), rate or self.sample_rate, self.sample_rate
            )
            return self._heard(wave[0], text, "the recording")
        if str(voice) in self.voices:
            return self._fitting(Voice.load(self.voices[str(voice)]), str(voice))
        if not Path(voice).is_file():
            known = f"; its voices are {', '.join(self.voices)}" if self.voices else ""
            raise UserError(f"There is no voice and no audio file {voice}{known}.")
        beside = Path(voice).with_suffix(".txt")
        if text is None and beside.is_file():
            text = beside.read_text(encoding="utf-8-sig").strip() or None
        return self._heard(read(voice, sample_rate=self.sample_rate, channels=1)[0], text, str(voice))

    def nobody(self) -> Voice:
        """No voice: the model takes any."""
        return Voice(torch.zeros(0, self.features.dim), self.features.fingerprint())

    def gain(self, features: Tensor) -> float:
        """What makes a wave of these features [frames, dim] about as loud as what was learned; 1 where it is so."""
        if self._levels is None:
            some = list(self.voices.values())[:8]
            self._levels = [level_of(Voice.load(file).features, self.features) for file in some]
        return gain_for(features, self.features, self._levels)

    def _heard(self, wave: Tensor, text: str | None, name: str) -> Voice:
        wave = wave.to(self.device)
        wave = wave * self.gain(self.features.encode(wave[None])[0])
        heard = self.features.encode(wave[None])[0].cpu()
        if len(heard) < self.frame_rate / 5:
            raise UserError(f"The voice {name} is shorter than 0.2 seconds; give some seconds of speech.")
        about = {"text": text} if text else None
        whole = Voice(heard, self.features.fingerprint(), about=about)
        if text:
            symbols, durations, _ = self.aligner.align_text(wave[: len(heard) * self.features.hop], text)
            whole = Voice(heard, whole.fingerprint, symbols.cpu(), durations.cpu(), about)
        return whole.first(round(PROMPT_SECONDS * self.frame_rate), self.aligner.symbols.silence)

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
