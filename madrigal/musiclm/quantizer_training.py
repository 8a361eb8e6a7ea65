"""Trains the quantizer of the joint embedding on the embeddings of sounds."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, check_resumed
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.trainer import Figures, Terms, Trainer
from madrigal.musiclm.clip_latents import LatentSource
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer


class MuLaNEmbedQuantizerTrainer(Trainer):
    """Trains `quantizer` on a folder of recordings, or on batches of "latents" [batch, dim] or of "audio".

    The codes follow the embeddings by moving averages. The tables begin as what the embedding can be read from, so that
    codes of like sounds are alike before a stage learns anything.
    """

    system: ClassVar[str] = "mulan-quantizer"
    model: MuLaNEmbedQuantizer

    def __init__(
        self,
        quantizer: MuLaNEmbedQuantizer,
        *,
        folder: str | Path | None = None,
        plan: Plan | None = None,
        source: LatentSource | None = None,
        results_folder: str | Path = "./results/mulan-quantizer",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        plan, given = plan_and_keywords(Plan, plan, options, type(self).__name__)
        source = LatentSource(path=Path(folder)) if folder is not None else source
        learned = {"mulan": quantizer.mulan.fingerprint()}
        if given.get("resume"):
            check_resumed(Path(results_folder), learned)
        recipe = recipe or recorded(self.system, quantizer.config, plan, source)
        super().__init__(
            quantizer,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe={**recipe, FINGERPRINTS: learned},
            **given,
        )

    def _open(self, source: LatentSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        return source.datasets(
            self.model.mulan,
            self.model.config.window_seconds,
            prepared_in=run / "data",
            anew=anew and self.is_main,
            say=tell if self.is_main else None,
        )

    def frozen(self) -> list[nn.Module]:
        return [self.model.mulan]

    def weight(self, turn: str, term: str) -> float:
        """What the codes leave over is no matter of gradients: they move by themselves."""
        return 0.0 if term == "distortion" else 1.0

    def loss(self, turn: str, batch: Batch) -> Terms:
        return self._terms(batch, collect=True)

    def validate(self, batch: Batch) -> Terms:
        return self._terms(batch, collect=False)

    def _terms(self, batch: Batch, *, collect: bool) -> Terms:
        """Squares of what is left of embeddings of unit length: by the codes, and by what each table says of them."""
        placed = self.model.placed(self._latents(batch))
        with torch.no_grad():
            made = self.model.quantize(placed, collect=collect)
        terms = {"distortion": (placed - made.embedding[:, 0]).square().sum(-1).mean()}
        for name, table in self.model.tables.items():
            said = self.model.readouts[name](table(made.codes[:, 0]).sum(1))
            terms[name] = (placed - said).square().sum(-1).mean()
        return terms

    @torch.no_grad()
    def _latents(self, batch: Batch) -> Tensor:
        if "latents" in batch:
            found: Tensor = batch["latents"]
            return found
        heard: Tensor = self.model.mulan.get_audio_latents(batch["audio"][:, 0], lengths=batch.get("lengths"))
        return heard

    def first_step(self, batches: list[Batch]) -> None:
        """Where sounds and texts lie, then codes from the sounds, of the step's own batches."""
        model, sounds = self.model, torch.cat([self._latents(batch) for batch in batches])
        model.means[:] = sounds.mean(0)
        texts = [batch["text_latents"] for batch in batches if "text_latents" in batch]
        if model.config.center and not texts and self.is_main:
            tell("There are no captions: texts are coded around the mean of the sounds, which is not their own")
        if texts:
            model.means[1] = torch.cat(texts).mean(0)
        model.rq.initialize(model.placed(sounds))

    def after_turn(self, turn: str, applied: bool) -> Figures:
        return self.model.rq.end_step(applied, self.ranks.sum_, self.ranks.gather)
