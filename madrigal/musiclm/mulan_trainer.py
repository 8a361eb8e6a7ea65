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
from madrigal.errors import UserError
from madrigal.layers.contrastive import Gathered
from madrigal.musiclm.captions import CaptionedSource, PairedDataset, collate_pairs, texts_of
from madrigal.musiclm.mulan import MuLaN, Pairs
from madrigal.musiclm.retrieval import places, recall_by_chance, spread

RECALLS = (1, 5, 10)
AT_CHANCE = 0.98
"""A loss that is more than this share of chance has learned nothing."""
ALIKE = 0.05
"""Where less than this share of all two captions of a batch differ, there is hardly anything to learn."""


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
        if mulan.config.audio.accept_spec:
            raise UserError(
                "MuLaN is trained on waves: train it with accept_spec=False, and give its weights to one that takes "
                "log-mels."
            )
        self._recent: deque[Tensor] = deque(maxlen=20)
        self._heard: list[tuple[Tensor, ...]] = []
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
        if not bool(mels.fitted):
            mels.fit_batches(batches)

    def loss(self, turn: str, batch: Batch) -> Terms:
        texts = texts_of(batch)
        contest = self.model.contest(
            batch["audio"],
            texts,
            lengths=batch["lengths"],
            seeds=batch.get("draw"),
            augment=True,
            gather=lambda rows: Gathered(*self.ranks.gather_rows(rows)),
            chunk_size=self.plan.chunk_size,
        )
        labels = self.model.labels(texts)
        different = (labels[:, None] != labels).float().mean()
        now = contest.loss.detach(), contest.chance.detach()
        self._recent.append(torch.stack((*now, different.to(now[0].device))))
        return {"contrastive": contest.loss, "chance": contest.chance}

    def weight(self, turn: str, term: str) -> float:
        return 0.0 if term == "chance" else 1.0

    def after_turn(self, turn: str, applied: bool) -> Figures:
        if (self.step + 1) % self.plan.chance_alarm_every == 0:
            loss, chance, different = torch.stack(list(self._recent)).mean(0).tolist()
            if different < ALIKE:
                self.print(
                    f"Only {different:.1%} of all two captions of a batch differ after {self.step + 1} steps: where "
                    "captions are the same or empty there is nothing to learn; give recordings captions of their own."
                )
            # Of two pairs, decoupled, each has one competitor: chance is 0, and no loss is a share of it.
            elif chance > 0 and loss > AT_CHANCE * chance:
                self.print(
                    f"The loss is still {loss / chance:.0%} of what it is by chance (ln of the batch) after "
                    f"{self.step + 1} steps: look whether captions differ and fit their recordings, raise "
                    "batch_size, or change lr."
                )
        return {"scale": float(self.model.contrast.scale().detach().mean())}

    def validate(self, batch: Batch) -> Terms:
        """A batch is encoded; what it is held against is known at the end."""
        texts = texts_of(batch)
        pairs = self.model.pairs(batch["audio"], texts, batch["lengths"])
        inner = (layers.transpose(0, 1) for layers in (pairs.audio_layers, pairs.text_layers))
        self._heard.append((pairs.audio, pairs.text, *inner, self.model.labels(texts).to(self.device)))
        return {}

    def conclude(self, means: Figures) -> Figures:
        """The loss in contests as large as those of training, beside chance; recall among all; how embeddings lie."""
        contests, self._heard = self._contests(), []
        if not contests:
            return means
        audio, text = (torch.cat([getattr(pairs, side) for pairs, _ in contests]) for side in ("audio", "text"))
        labels = torch.cat([labels for _, labels in contests])
        for pairs, own in contests:
            found = self.model.contest_of(pairs, own)
            for name, figure in {"loss": found.loss, "chance": found.chance}.items():
                means[name] = means.get(name, 0.0) + float(figure) * len(own) / len(labels)
        ways = {"audio_to_text": places(audio, text, labels), "text_to_audio": places(text, audio, labels)}
        recalls = {
            f"{way}/recall@{most}": float((found < most).float().mean())
            for way, found in ways.items()
            for most in RECALLS
        }
        return {
            **means,
            **recalls,
            "chance/recall@10": recall_by_chance(labels, 10),
            "alignment": float((audio * text).sum(1).mean()),
            "audio_spread": spread(audio),
            "text_spread": spread(text),
        }

    def _contests(self) -> list[tuple[Pairs, Tensor]]:
        """What was heard on all ranks, with labels: their batches of one number are one contest, as in training."""
        most = max(int(batches) for batches in self.ranks.gather(torch.tensor([len(self._heard)], device=self.device)))
        found = []
        for number in range(most):
            # A rank that has no more has to gather with the others.
            own = self._heard[number] if number < len(self._heard) else self._no_rows()
            audio, text, *inner, labels = (self.ranks.gather_rows(rows)[0] for rows in own)
            found.append((Pairs(audio, text, *(layers.transpose(0, 1) for layers in inner)), labels))
        return found

    def _no_rows(self) -> tuple[Tensor, ...]:
        model, layers = self.model, len(self.model.inner_layers[0])
        latent, inner = (model.dim_latent,), ((layers, model.audio.dim), (layers, model.text.dim))
        rows = [torch.zeros(0, *shape, device=self.device) for shape in (latent, latent, *inner)]
        return (*rows, torch.zeros(0, dtype=torch.long, device=self.device))

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
