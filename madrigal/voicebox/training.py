"""Trains the model to find the flow from noise to speech."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.data.source import AudioSource
from madrigal.engine.artifacts import ORIGINAL, Audio, Picture, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, Fingerprints, check_resumed
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Terms, Trainer
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.voicebox import keywords
from madrigal.voicebox.asking import Asked
from madrigal.voicebox.batches import collate_flows
from madrigal.voicebox.filling import Filled, check_guidance
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.plans import FlowPlan, VoiceBoxPlan
from madrigal.voicebox.source import AlignedSource

PROMPT = 0.3
"""The share of a validation recording that a sample is given and goes on from."""
FlowSource = AlignedSource | AudioSource


class VoiceBoxTrainer(Trainer):
    """Trains the `voicebox` of a wrapper on recordings that were aligned, or on a dataset of one's own.

    `batches.py` says what a dataset gives. What only helps (features, a vocoder, makers of ids) is in no optimizer and
    no checkpoint.
    """

    system: ClassVar[str] = "voicebox-flow"
    unit: ClassVar[str] = "frames"
    Plan: ClassVar[type[VoiceBoxPlan]] = FlowPlan
    model: VoiceBox
    plan: VoiceBoxPlan

    def __init__(
        self,
        cfm_wrapper: ConditionalFlowMatcherWrapper,
        *,
        folder: str | Path | None = None,
        plan: VoiceBoxPlan | None = None,
        source: FlowSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        plan, given = plan_and_keywords(self.Plan, plan, keywords.trainer_words(options, name), name)
        self.wrapper = cfm_wrapper
        voicebox = cfm_wrapper.voicebox
        if folder is not None and source is not None:
            raise UserError(
                f"{name} was given a folder and a source, which both name its recordings: give one of them."
            )
        if folder is not None:
            source = AudioSource(path=Path(folder))
        hears_ids = getattr(cfm_wrapper.text_to_semantic, "wav2vec", None) is not None
        if isinstance(source, AudioSource) and voicebox.config.condition_on_text and not hears_ids:
            raise UserError(
                "Recordings alone have no ids: align them (`madrigal align`), give the wrapper a text_to_semantic that "
                "hears them, or set condition_on_text=False."
            )
        self.check(plan)
        learned = self._learned_from()
        if given.get("resume"):
            check_resumed(Path(results_folder), learned)
        recipe = recipe or recorded(self.system, voicebox.config, plan, source)
        super().__init__(
            voicebox,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe={**recipe, **({FINGERPRINTS: learned} if learned else {})},
            **given,
        )
        cfm_wrapper.settle_statistics()  # a run that goes on has brought the model's

    def check(self, plan: VoiceBoxPlan) -> None:
        """What would stand in the way of the plan is told before the run is opened, and one that was there replaced."""
        check_guidance(self.wrapper.voicebox.config, plan.sampling().get("cond_scale", 1.0))

    def _learned_from(self) -> Fingerprints:
        """What has to be the same when the run goes on; by what features are normalised, the model knows."""
        options = getattr(self.wrapper.features, "options", None)
        return {} if options is None else {"features": fingerprint_of(options(), {})}

    def _open(self, source: FlowSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        features, anew = self.wrapper.features, anew and self.is_main
        more: Any = {"prepared_in": run / "data", "anew": anew, "say": tell if self.is_main else None}
        if features is None:
            raise UserError("Recordings need features to be learned from: give the wrapper features=….")
        if isinstance(source, AudioSource):
            return source.datasets(features.sample_rate, multiple_of=features.hop, channels=1, **more)
        return source.datasets((features.sample_rate, features.hop), **more)

    def generate(self, **options: Any) -> Tensor:
        """Speech; the options are those of the wrapper's `sample`."""
        return self.wrapper.sample(**options)

    def first_step(self, batches: list[Batch]) -> None:
        """Features that were never fitted are fitted to the first batches; the model keeps by what."""
        features = self.wrapper.features
        if features is None or not hasattr(features, "mean"):
            return
        if not bool(features.fitted) and "audio" in batches[0]:
            features.to(self.device).fit_batches(batches)
        self.model.mean.copy_(features.mean)
        self.model.std.copy_(features.std)

    def loss(self, turn: str, batch: Batch) -> Terms:
        return {"flow": self.wrapper.outcome(*self.heard(batch), training=True).loss}

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """The same loss; times, spans and noise are the same every time, so that its curve shows the model alone."""
        outcome = self.wrapper.outcome(*self.heard(batch), training=False)
        return {"loss": (outcome.loss, outcome.frames)}

    def sample(self, batch: Batch) -> list[Sample]:
        """How each recording's beginning goes on, with its own ids, beside the recording.

        The beginning is the recording's own features: there one hears what is lost by decoding them.
        """
        x1, lengths, ids = self.heard(batch)
        given = torch.arange(x1.shape[1], device=x1.device) < (lengths * PROMPT).long()[:, None]
        true = Filled(x1, lengths, 0)
        made = self.wrapper.filled(Asked(lengths, x1, given, ids), **self.plan.sampling())
        pictures = [_picture(*rows) for rows in zip(true.rows(), made.rows(), strict=True)]
        if self.wrapper.features is None:
            return [{"picture": picture} for picture in pictures]
        originals = self._recorded(batch) if "audio" in batch else self._said(true)
        both = zip(pictures, originals, self._said(made), strict=True)
        return [{ORIGINAL: old, "made": new, "picture": picture} for picture, old, new in both]

    def _recorded(self, batch: Batch) -> list[Audio]:
        waves = zip(batch["audio"], batch["lengths"].tolist(), strict=True)
        return [Audio(wave[0, :end].cpu(), self.wrapper.features.sample_rate) for wave, end in waves]

    def _said(self, filled: Filled) -> list[Audio]:
        features = self.wrapper.features
        ends = (filled.lengths * features.hop).tolist()
        waves = zip(self.wrapper.said(filled), ends, strict=True)
        return [Audio(wave[:end].cpu(), features.sample_rate) for wave, end in waves]

    def units(self, batch: Batch) -> float:
        if "features_lengths" in batch:
            return float(batch["features_lengths"].sum())
        return float(batch["lengths"].sum()) / self.wrapper.features.hop

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def collate(self, items: list[Any]) -> Batch:
        return collate_flows(items, self.model.config.dim_in)

    def heard(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features [batch, frames, dim_in], their lengths [batch], and ids [batch, frames] if there are any."""
        name, count = ("features", "features_lengths") if "features" in batch else ("audio", "lengths")
        sound, counted = batch[name], batch[count]
        x1, lengths = self.wrapper.heard(sound, counted)
        if not self.model.config.condition_on_text:
            return x1, lengths, None
        kind = "ids" if "ids" in batch else "symbols"
        words = {kind: batch.get(kind), "counts": batch.get(f"{kind}_lengths")}
        if kind == "symbols":
            words |= {"durations": batch.get("durations"), "tokens": batch.get("semantic")}
        return x1, lengths, self.wrapper.told(sound, counted, lengths, x1.shape[1], **words)


def _picture(true: Tensor, made: Tensor) -> Picture:
    """Features [frames, dim] of a recording above those that were made, low dimensions at the bottom of each.

    Three deviations either way are black and white.
    """
    both = [((rows.float() + 3) / 6).clamp(0, 1).T.flip(0) for rows in (true, made)]
    line = torch.ones_like(both[0][:2])
    return Picture(torch.cat((both[0], line, both[1])).expand(3, -1, -1))
