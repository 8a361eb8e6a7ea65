"""What the trainers of the three tasks have in common: their data, their losses and their figures."""

from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from madrigal.audiolm.learned import fingerprints_of
from madrigal.audiolm.source import TokenSource
from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, Fingerprints, check_resumed, learned_by
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Figures, Terms, Trainer
from madrigal.errors import UserError
from madrigal.speartts import keywords
from madrigal.speartts.ctc import LETTERS
from madrigal.speartts.losses import CTC, EARLY, Outcome
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pairs import collate_pairs
from madrigal.speartts.plans import SpearPlan
from madrigal.speartts.source import TranscribedSource, transcribed
from madrigal.speartts.wrappers import TaskWrapper

FITS = "ctc_fits"
"""The share of texts that CTC has room for."""
GENERATED = "generated"
"""Among a run's fingerprints that of the pairs which a model has labelled."""


class SpearTrainer(Trainer):
    """Trains `model` on a folder of recordings, on tokens on disk, or on a dataset of one's own.

    A dataset gives dicts ("semantic" or "audio"; "text" or "text_ids") or tuples (speech, text), where whole numbers
    are ids, other numbers are a wave and a string is text.
    """

    unit: ClassVar[str] = "tokens"
    Plan: ClassVar[type[SpearPlan]]
    Source: ClassVar[type[TokenSource]] = TranscribedSource
    model: TextToSemantic
    wrapper: TaskWrapper
    _told = False

    def __init__(
        self,
        model: TextToSemantic,
        wav2vec: Any = None,
        *,
        folder: str | Path | None = None,
        plan: SpearPlan | None = None,
        source: TokenSource | None = None,
        results_folder: str | Path | None = None,
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        options = keywords.trainer_words(options, name)
        plan, given = plan_and_keywords(self.Plan, plan, options, name)
        self.wav2vec = model.wav2vec if wav2vec is None else wav2vec
        keywords.check_tokenizer(self.wav2vec, model.config)
        if folder is not None:
            source = self.Source(path=Path(folder))
        self._choose_what_learns(model, plan)
        self.wrapper = self._task(model, plan)
        learned = self._learned_from()
        if source is None and given.get("train_dataloader") is None:
            given["dataset"], given["val_dataset"] = self._joined(given.get("dataset"), given.get("val_dataset"), plan)
        results_folder = Path("results", self.system) if results_folder is None else Path(results_folder)
        if given.get("resume"):
            _check_resumed(results_folder, learned)
        recipe = recipe or recorded(self.system, model.config, plan, source)
        super().__init__(
            model,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe={**recipe, **({FINGERPRINTS: learned} if learned else {})},
            **given,
        )

    def _learned_from(self) -> Fingerprints:
        """What has to be the same when the run goes on."""
        return fingerprints_of(self.wav2vec, None)

    def _task(self, model: TextToSemantic, plan: Any) -> TaskWrapper:
        raise NotImplementedError

    def _choose_what_learns(self, model: TextToSemantic, plan: Any) -> None:
        """Everything but what only reading teaches, which weight decay would wear away."""
        model.unfreeze_all()
        if model.ctc is not None:
            model.ctc.requires_grad_(False)

    def _open(self, source: TokenSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        say = tell if self.is_main else None
        train, valid = source.datasets(
            tokenizer=self.wav2vec, codec=None, prepared_in=run / "data", anew=anew and self.is_main, say=say
        )
        if "text" in source.fields:
            if source.max_length_seconds is not None:
                raise UserError("A recording and its text are learned whole: leave out data.max_length_seconds.")
            train = transcribed(train, self.model.text_tokenizer, say, source.path)
            if valid is not None:
                valid = transcribed(valid, self.model.text_tokenizer, say, source.valid_path or source.path)
        return self._joined(train, valid, self.plan)

    def _joined(self, dataset: Any, valid: Any, plan: Any) -> tuple[Any, Any]:
        """The data, with what else a trainer learns from."""
        return dataset, valid

    def generate(self, source: Any, **options: Any) -> Any:
        """Targets for sources, by the decoder; the options are those of `TextToSemantic.generate`."""
        return self.wrapper.generate(source, **options)

    def loss(self, turn: str, batch: Batch) -> Terms:
        outcome = self.wrapper.run(batch, training=True)
        self._tell_what_does_not_fit(outcome)
        return outcome.losses(self.wrapper.target_type)

    def _tell_what_does_not_fit(self, outcome: Outcome) -> None:
        """Once: the others of a set are like the first that are found."""
        if outcome.ctc is None or self._told or bool(outcome.ctc.fits.all()):
            return
        self._told, fits = True, outcome.ctc.fits
        tell(
            f"{int((~fits).sum())} of {len(fits)} texts of a batch have more symbols than CTC has room for ({LETTERS} "
            f"for each semantic token), and so may others: only the decoder learns from them; valid/{FITS} is the "
            "share that fits. A model.text of kind characters or bpe takes less room than bytes, and "
            "model.unique_consecutive=false gives more."
        )

    def weight(self, turn: str, term: str) -> float:
        return self.wrapper.weight(term)

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """Nats a token and the share of tokens guessed right; each weighs as much as it has tokens, CTC by letters."""
        outcome = self.wrapper.run(batch, training=False)
        terms = {**outcome.losses(self.wrapper.target_type), "accuracy": outcome.accuracy}
        figures: dict[str, Counted] = {name: (term, len(outcome.targets)) for name, term in terms.items()}
        if outcome.ctc is not None:
            figures[CTC] = (outcome.ctc.mean, int(outcome.ctc.counted))
            figures[FITS] = (outcome.ctc.fits.float().mean(), len(outcome.ctc.fits))
        return figures

    def conclude(self, means: Figures) -> Figures:
        """Also the loss that training lowers, without what validation has none of."""
        names = [name for name in (self.wrapper.target_type, EARLY, CTC) if name in means]
        return {**means, "loss": sum(self.wrapper.weight(name) * means[name] for name in names)} if names else means

    def units(self, batch: Batch) -> float:
        """Tokens of source and target together, or what the audio will become."""
        count = float(batch["text_lengths"].sum()) if "text_lengths" in batch else 0.0
        if "semantic_lengths" in batch:
            count += float(batch["semantic_lengths"].sum())
        elif "lengths" in batch and self.wav2vec is not None:
            count += float(batch["lengths"].sum()) / self.wav2vec.target_sample_hz * self.wav2vec.frame_rate
        return count

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def collate(self, items: list[Any]) -> Batch:
        return collate_pairs(items, self.model.text_tokenizer)


def _check_resumed(run: Path, here: Fingerprints) -> None:
    """A run goes on with its tokenizer, and with its generated pairs unless it has learned nothing of them yet."""
    check_resumed(run, {name: value for name, value in here.items() if name != GENERATED})
    before, now = learned_by(run).get(GENERATED), here.get(GENERATED)
    if before != now and newest_whole(run / "checkpoints") is not None:
        raise UserError(
            f"{run} has learned from other generated pairs ({before or 'none'}, and now {now or 'none'}): give it "
            f"{'those' if before else 'none'}, or start over with --overwrite."
        )
