"""Trains a MuLaN on recordings with captions."""

from collections import deque
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from madrigal.engine.artifacts import ORIGINAL, Audio, Sample, Text
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recordings import RecordingsTrainer
from madrigal.engine.trainer import Figures, Terms
from madrigal.layers.contrastive import Gathered
from madrigal.musiclm.captions import CaptionedSource, PairedDataset, collate_pairs, texts_of
from madrigal.musiclm.mulan import MuLaN, labels_of
from madrigal.musiclm.retrieval import places, spread

RECALLS = (1, 5, 10)
AT_CHANCE = 0.98
"""A loss that is more than this share of chance has learned nothing."""


class MuLaNPlan(Plan):
    """A plan of contests: the negatives of a pair are all others of a micro-batch, on all processes.

    More accumulation is no larger batch: it averages over more contests of the same size. What makes a contest larger
    is `batch_size`, and what makes it fit into memory is `chunk_size`.
    """

    batch_size: int = Field(128, ge=2, description="pairs in a contest, on one process")
    chunk_size: int | None = Field(
        None,
        ge=1,
        description="pairs that are encoded at once; the loss is the same, memory is less, it takes a third longer",
    )
    chance_alarm_every: int = Field(
        300, ge=1, description="after so many steps, and so many again, an alarm if the loss is still at chance"
    )


class MuLaNTrainer(RecordingsTrainer):
    """Trains `mulan` on a folder of captioned recordings, or on a dataset of pairs (wave, caption or ids).

    Keywords are the fields of `MuLaNPlan`; `captions.py` says what a batch holds.
    """

    system: ClassVar[str] = "mulan"
    model: MuLaN
    plan: MuLaNPlan

    def __init__(
        self,
        mulan: MuLaN,
        dataset: Any = None,
        *,
        folder: str | Path | None = None,
        data_max_length: int | None = None,
        plan: MuLaNPlan | None = None,
        source: CaptionedSource | None = None,
        **options: Any,
    ) -> None:
        results = {name: options.pop(name) for name in ("results_folder", "recipe") if name in options}
        plan, given = plan_and_keywords(MuLaNPlan, plan, options if plan else _words(options), type(self).__name__)
        self._shares: deque[Tensor] = deque(maxlen=20)
        self._heard: list[tuple[Tensor, Tensor, Tensor]] = []
        if folder is not None:
            seconds = None if data_max_length is None else data_max_length / mulan.sample_rate
            source = CaptionedSource(path=Path(folder), max_length_seconds=seconds)
        if dataset is not None:
            given["dataset"] = dataset if hasattr(dataset, "draw") else PairedDataset(dataset, data_max_length)
        super().__init__(mulan, plan=plan, source=source, **results, **given)

    def _open(self, source: Any, run: Path, *, anew: bool) -> tuple[Any, Any]:
        say = tell if self.is_main else None
        return source.pairs(self.model.sample_rate, prepared_in=run / "data", anew=anew and self.is_main, say=say)

    def first_step(self, batches: list[Batch]) -> None:
        """How loud each band is, from the first batches; a model that was trained before knows."""
        mels = self.model.audio.mels
        if not bool(mels.fitted) and not self.model.config.audio.accept_spec:
            mels.fit_batches(batches)

    def loss(self, turn: str, batch: Batch) -> Terms:
        contest = self.model.contest(
            batch["audio"],
            texts_of(batch),
            lengths=batch["lengths"],
            seeds=batch.get("draw"),
            augment=True,
            gather=lambda rows: Gathered(*self.ranks.gather_rows(rows)),
            chunk_size=self.plan.chunk_size,
        )
        self._shares.append((contest.loss / contest.chance.clamp(min=1e-6)).detach())
        return {"contrastive": contest.loss, "chance": contest.chance}

    def weight(self, turn: str, term: str) -> float:
        return 0.0 if term == "chance" else 1.0

    def after_turn(self, turn: str, applied: bool) -> Figures:
        if (self.step + 1) % self.plan.chance_alarm_every == 0:
            share = float(torch.stack(list(self._shares)).mean())
            if share > AT_CHANCE:
                self.print(
                    f"The loss is still {share:.0%} of what it is by chance (ln of the batch) after {self.step + 1} "
                    "steps: look whether captions differ and fit their recordings, raise batch_size, or change lr."
                )
        return {"scale": float(self.model.contrast.scale().detach().mean())}

    def validate(self, batch: Batch) -> Terms:
        """The loss of a batch beside chance; what is found among all is for the end."""
        texts = texts_of(batch)
        pairs = self.model.pairs(batch["audio"], texts, batch["lengths"])
        contest = self.model.contest_of(pairs, texts)
        self._heard.append((pairs.audio, pairs.text, labels_of(texts).to(self.device)))
        return {"loss": contest.loss, "chance": contest.chance}

    def conclude(self, means: Figures) -> Figures:
        """Recall among the whole validation set, both ways, beside chance; and how the embeddings lie."""
        heard, self._heard = self._heard, []
        empty = torch.zeros(0, self.model.dim_latent, device=self.device)
        # A rank that heard nothing has to gather with the others.
        heard = heard or [(empty, empty, empty[:, 0].long())]
        audio, text, labels = (self.ranks.gather_rows(torch.cat(side))[0] for side in zip(*heard, strict=True))
        if not len(audio):
            return means
        ways = {"audio_to_text": places(audio, text, labels), "text_to_audio": places(text, audio, labels)}
        recalls = {
            f"{way}/recall@{most}": float((found < most).float().mean())
            for way, found in ways.items()
            for most in RECALLS
        }
        return {
            **means,
            **recalls,
            "chance/recall@10": min(1.0, 10 / len(audio)),
            "alignment": float((audio * text).sum(1).mean()),
            "audio_spread": spread(audio),
            "text_spread": spread(text),
        }

    def sample(self, batch: Batch) -> list[Sample]:
        """Each recording, and how similar the captions of the others are beside its own."""
        texts = texts_of(batch)
        if isinstance(texts, Tensor):
            return []
        scores = self.model(batch["audio"], texts, lengths=batch["lengths"], return_pairwise_similarities=True)
        waves = zip(batch["audio"], batch["lengths"].tolist(), strict=True)
        return [
            {ORIGINAL: Audio(wave[:, :end].cpu(), self.model.sample_rate), "captions": Text(_told(texts, row, number))}
            for number, ((wave, end), row) in enumerate(zip(waves, scores, strict=True))
        ]

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def collate(self, items: list[Any]) -> Batch:
        return collate_pairs(items)


def _words(options: dict[str, Any]) -> dict[str, Any]:
    """Words of older scripts: `use_lion`, and no number of steps for one time through the data."""
    options = dict(options)
    if options.pop("use_lion", False):
        options["optimizer"] = "lion"
    if options.get("num_train_steps") is None and "num_train_epochs" not in options:
        options = {**{k: v for k, v in options.items() if k != "num_train_steps"}, "num_train_epochs": 1}
    return options


def _told(texts: list[str], scores: Tensor, own: int) -> str:
    best = scores.argsort(descending=True).tolist()
    return "\n".join(f"{scores[i]:+.3f} {'=' if i == own else ' '} {texts[i]}" for i in best)
