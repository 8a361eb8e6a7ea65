"""Where pairs of speech and text come from: recordings with a text each, and pairs that a model has labelled."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from torch.utils.data import Subset

from madrigal.audiolm.source import TokenSource
from madrigal.data.failures import FileDataset
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.split import split
from madrigal.data.token_dataset import TokenDataset
from madrigal.errors import UserError
from madrigal.speartts.generated import GeneratedAudioTextDataset
from madrigal.speartts.labels import text_of_ids
from madrigal.speartts.pairs import mixed, with_text
from madrigal.tokenizers.text import TextTokenizer, listed, shortened

Say = Callable[[str], object]


class TranscribedSource(TokenSource):
    """Recordings with texts, and their tokens where they lie on disk."""

    fields: tuple[str, ...] = Field(("text",), description="what a batch gets of the manifest beside tokens")


class PairSource(TranscribedSource):
    """Recordings with texts, and generated pairs beside them."""

    generated: Path | None = Field(None, description="a folder of `madrigal pseudo-label`: more pairs to learn from")
    generated_ratio: float | None = Field(
        None, gt=0, lt=1, description="share of generated pairs; none takes every pair once"
    )

    @model_validator(mode="after")
    def _both_are_tokens(self) -> Self:
        if self.generated is not None and self.tokens is None:
            raise ValueError(
                "generated pairs hold tokens, and so must the recordings: run `madrigal tokenize`, and name what it "
                "wrote with tokens"
            )
        if self.generated is None and self.generated_ratio is not None:
            raise ValueError("generated_ratio is a share of generated pairs: name their folder with generated")
        return self


def transcribed(dataset: Any, tokenizer: TextTokenizer | None, say: Say | None, where: Path) -> Any:
    """The recordings that have a text; one that the tokenizer cannot say is told before training begins."""
    check_texts(dataset.entries, tokenizer, where)
    chosen, left_out = with_text(dataset)
    if left_out and say is not None:
        say(f"{left_out} of {len(dataset)} recordings of {where} have no text and are left out")
    return chosen


def check_texts(entries: Iterable[Entry], tokenizer: TextTokenizer | None, where: Path) -> None:
    """Refuse recordings of which one has a text that cannot be said."""
    if tokenizer is None:
        return
    for entry in entries:
        if unknown := tokenizer.unknown(entry.text or ""):
            raise UserError(
                f"The text of {entry.path} in {where} holds {listed(unknown)}, which the {tokenizer.kind} "
                f"tokenizer cannot say ({shortened(entry.text or '')!r}): write it out, or take "
                "model.text.kind=bytes."
            )


def _check_ids(manifest: Manifest, tokenizer: TextTokenizer | None, folder: Path) -> None:
    """Ids of a text are those of the tokenizer that reads here; where nobody knows whose they are, they are taken."""
    found, here = text_of_ids(folder), None if tokenizer is None else tokenizer.fingerprint()
    has_ids = any("text_ids" in (entry.model_extra or {}) for entry in manifest)
    if has_ids and found is not None and found != here:
        kind = "ids of text" if tokenizer is None else f"text of kind {tokenizer.kind}"
        raise UserError(
            f"The pairs in {folder} hold phonemes, which are no text that could be read again, and this model takes "
            f"{kind}: give it the model.text of the reader, or label with a reader of letters."
        )


def with_generated(
    real: Any,
    valid: Any,
    *,
    folder: Path,
    ratio: float | None,
    wav2vec: Any,
    text: TextTokenizer | None,
    valid_frac: float,
    split_seed: int,
    say: Say | None = None,
) -> tuple[Any, Any]:
    """Real pairs and generated ones; a validation set is held out of the real ones before they are mixed.

    A recording that is among the real pairs, or held out, is not learned from with a generated text.
    """
    generated = GeneratedAudioTextDataset(folder)
    found = generated.shards.info.fingerprint
    if wav2vec is not None and found != wav2vec.fingerprint():
        raise UserError(
            f"The pairs in {folder} hold tokens of another tokenizer ({found}, and this one is "
            f"{wav2vec.fingerprint()}): label the recordings again with a model of this one."
        )
    check_texts(generated.manifest, text, folder)
    _check_ids(generated.manifest, text, folder)
    new = _not_among(generated, {*_recordings_of(real), *_recordings_of(valid)})
    if len(new) < len(generated) and say is not None:
        say(
            f"{len(generated) - len(new)} of {len(generated)} generated pairs of {folder} are of recordings that are "
            "held out or have a text of their own, and are left out"
        )
    if real is None:
        if ratio is not None:
            raise UserError("generated_ratio is a share beside real pairs, and there are none: leave it out.")
        return new, valid
    if valid is None and valid_frac > 0 and len(real) > 1:
        train, held_out = split(len(real), valid_frac, split_seed)
        real, valid = Subset(real, train), Subset(real, held_out)
    return (mixed(real, new, ratio) if len(new) else real), valid


def _not_among(generated: GeneratedAudioTextDataset, taken: set[Path]) -> Any:
    manifest = generated.manifest
    chosen = [n for n, entry in enumerate(manifest) if not taken or manifest.resolve(entry).resolve() not in taken]
    return generated if len(chosen) == len(generated) else Subset(generated, chosen)


def _recordings_of(dataset: Any) -> list[Path]:
    """The file of each item, where a dataset knows them, and else nothing."""
    if isinstance(dataset, Subset):
        files = _recordings_of(dataset.dataset)
        return [files[index] for index in dataset.indices] if files else []
    if isinstance(dataset, TokenDataset):
        return [(dataset.root / entry.path).resolve() for entry in dataset.entries]
    return [file.resolve() for file in dataset.files] if isinstance(dataset, FileDataset) else []
