"""Trains a MaskGit to find masked tokens of pictures, and its critic to tell what it found wrongly."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.engine.artifacts import ORIGINAL, Picture, Sample, Text
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, Fingerprints, check_resumed
from madrigal.engine.recipe import recorded
from madrigal.engine.sourced import SourceTrainer
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Terms
from madrigal.engine.turn import Turn
from madrigal.errors import UserError
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_plan import MaskGitPlan
from madrigal.muse.maskgit_source import CaptionedSource
from madrigal.muse.maskgit_transformer import TokenTransformer
from madrigal.muse.pictures import from_pil, grid, to_pil


class MaskGitTrainer(SourceTrainer):
    """Trains a `maskgit` on pictures of a folder, on tokens of them, or on a dataset of one's own.

    An item of a dataset has an "image" [3, height, width] or "ids" [rows, columns] (and "cond_ids" for
    super-resolution), and a "text", "text_embeds" with a "text_mask", or a "label", where something conditions the
    model. The vae is in no optimizer and no checkpoint.
    """

    system: ClassVar[str] = "maskgit"
    unit: ClassVar[str] = "pictures"
    model: MaskGit
    plan: MaskGitPlan

    def __init__(
        self,
        maskgit: MaskGit,
        *,
        folder: str | Path | None = None,
        plan: MaskGitPlan | None = None,
        source: CaptionedSource | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        plan, given = plan_and_keywords(MaskGitPlan, plan, options, name)
        if folder is not None and source is not None:
            raise UserError(f"{name} was given a folder and a source, which both name its pictures: give one of them.")
        if folder is not None:
            source = CaptionedSource(path=Path(folder))
        self.check(maskgit)
        learned: Fingerprints = {
            kind: getattr(maskgit, kind).fingerprint
            for kind in ("vae", "cond_vae")
            if hasattr(getattr(maskgit, kind), "fingerprint")
        }
        if given.get("resume"):
            check_resumed(Path(results_folder), learned)
        recipe = recipe or recorded(self.system, maskgit.config, plan, source)
        super().__init__(
            maskgit,
            plan=plan,
            source=source,
            results_folder=results_folder,
            recipe={**recipe, **({FINGERPRINTS: learned} if learned else {})},
            **given,
        )

    def opened(self, source: CaptionedSource, **how: Any) -> tuple[Any, Any]:
        return source.datasets(self.model, **how)

    def check(self, maskgit: MaskGit) -> None:
        """What would stand in the way is told before the run is opened, and one that was there replaced."""

    def loss(self, turn: str, batch: Batch) -> Terms:
        ids, low = self.tokens(batch)
        outcome = self.model.outcome(ids, self.given(batch), low, drop=self.model.config.cond_drop_prob)
        return {"tokens": outcome.loss} | ({} if outcome.critic is None else {"critic": outcome.critic})

    def weight(self, turn: str, term: str) -> float:
        return self.model.config.critic_loss_weight if term == "critic" else 1.0

    def validate(self, batch: Batch) -> dict[str, Counted | Tensor]:
        """The same with every condition; masks are the same every time, so that the curve shows the model alone."""
        ids, low = self.tokens(batch)
        outcome = self.model.outcome(ids, self.given(batch), low, shown_first=1.0)
        figures: dict[str, Counted | Tensor] = {
            "loss": (outcome.loss, outcome.tokens),
            "accuracy": (outcome.accuracy, outcome.tokens),
        }
        return figures if outcome.critic is None else {**figures, "critic": outcome.critic}

    def sample(self, batch: Batch) -> list[Sample]:
        """A picture for every item's condition beside its own, and a page of all of them with their captions."""
        if self.model.vae is None:
            return []
        ids, low = self.tokens(batch)
        given, size = self.given(batch), (ids.shape[1], ids.shape[2])
        made = self.model.generate(
            **given,
            cond_token_ids=low,
            fmap_size=size,
            batch_size=len(ids),
            seed=self.plan.seed,
            **self.plan.sampling(),
        )
        originals = batch["image"] if "image" in batch else self.model.picture(ids)
        captions = self.captions(batch, len(ids))
        page = Picture(from_pil(grid(to_pil(made), captions)))
        samples: list[Sample] = [
            {ORIGINAL: Picture(original), "made": Picture(picture), "caption": Text(caption)}
            for original, picture, caption in zip(originals, made, captions, strict=True)
        ]
        samples[0]["page"] = page
        return samples

    def captions(self, batch: Batch, rows: int) -> list[str]:
        if "text" in batch:
            return [str(text) for text in batch["text"]]
        return [str(int(label)) for label in batch["label"]] if "label" in batch else [""] * rows

    def tokens(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Ids [batch, rows, columns] and those in low resolution, from disk or of the pictures."""
        return self.model.tokenised(
            batch["image" if "ids" not in batch else "ids"], cond_token_ids=batch.get("cond_ids")
        )

    def given(self, batch: Batch) -> dict[str, Any]:
        """What conditions the batch, as the transformer's `condition` takes it."""
        config = self.model.config
        if not config.transformer.is_conditioned:
            return {}
        if config.transformer.text_encoder == "classes":
            return {"classes": batch["label"] if "label" in batch else self._classes(batch)}
        if "text_embeds" in batch:
            return {"text_embeds": batch["text_embeds"], "text_mask": batch.get("text_mask")}
        if "text" not in batch:
            raise UserError(
                "The model is conditioned on text, and the pictures have none: give them captions (a .txt beside each, "
                "or metadata.jsonl), or set text_encoder=none."
            )
        return {"texts": list(batch["text"])}

    def _classes(self, batch: Batch) -> Tensor:
        names = self.model.config.class_names
        if names is None or "text" not in batch:
            raise UserError(
                'The model is conditioned on classes: give its data a "label", or captions and class_names.'
            )
        unknown = next((text for text in batch["text"] if text not in names), None)
        if unknown is not None:
            raise UserError(f"The caption {unknown!r} is none of the model's {len(names)} classes.")
        return torch.tensor([names.index(text) for text in batch["text"]], device=self.device)

    def blocks(self) -> list[nn.Module]:
        nets = (self.model.transformer, self.model.token_critic)
        return [layer for net in nets if isinstance(net, TokenTransformer) for layer in net.transformer.layers]


class TokenCriticTrainer(MaskGitTrainer):
    """Trains the critic of a `maskgit` alone; the transformer that it judges stays as it is."""

    system: ClassVar[str] = "token-critic"

    def check(self, maskgit: MaskGit) -> None:
        if maskgit.token_critic is None:
            raise UserError(
                "The MaskGit has no critic to train: build it with token_critic=… or self_token_critic=True."
            )
        # Not `frozen`, which would leave it out of the checkpoints: what comes of this is a whole MaskGit.
        maskgit.transformer.requires_grad_(False)

    def turns(self) -> list[Turn]:
        learned = {name: p for name, p in self.model.named_parameters() if name.startswith("token_critic.")}
        return [Turn(self.system, learned, max_grad_norm=self.plan.max_grad_norm)]

    def loss(self, turn: str, batch: Batch) -> Terms:
        with eval_mode(self.model.transformer):  # it draws as it will draw, without dropout
            return {"critic": super().loss(turn, batch)["critic"]}

    def weight(self, turn: str, term: str) -> float:
        return 1.0

    def validate(self, batch: Batch) -> dict[str, Counted | Tensor]:
        figures = super().validate(batch)
        return {"loss": figures["critic"], "maskgit": figures["loss"], "accuracy": figures["accuracy"]}
