"""Back-translation: untranscribed speech is read into text, and what was read with confidence becomes pairs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from madrigal.audiolm.loading import tokenizer_of
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.tokens import PAD, TokenInfo, TokenShards, digest
from madrigal.engine.learned import learned_by, recipe_of
from madrigal.errors import UserError
from madrigal.speartts.labels import Label, LabelFolder, Settings, begin, write_part
from madrigal.speartts.model import TextToSemantic
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.loading import load_tokenizer
from madrigal.tokenizers.token_making import Job, entries_of, job_of, one_thread
from madrigal.tokenizers.tokenizing import tokenize_manifest
from madrigal.tokenizers.tokenizing_workers import in_processes

Progress = Callable[[int, int], object]
THRESHOLD, BEAM = 0.5, 4
READS = "semantic-to-text"
UNTRANSCRIBED = "untranscribed"
"""Where in the folder the tokens go of recordings that had none."""


class Reader:
    """Semantic ids [time] to labels, in batches of rows of about one length. The same rows always give the same.

    Without a `beam_size` the model's CTC head reads, where it has one, and else the decoder with a beam of BEAM.
    """

    def __init__(self, model: TextToSemantic, *, beam_size: int | None = None, batch_size: int = 16) -> None:
        self.model, self.batch_size = model.eval(), batch_size
        self.beam_size = BEAM if beam_size is None and model.ctc is None else beam_size
        # Phonemes are no spelling: read as a text, they would be said as something else.
        self.gives_text = model.text_tokenizer is not None and model.text_tokenizer.kind != "phonemes"

    def settings(self, tokenizer: str, manifest: Manifest, threshold: float) -> Settings:
        """What decides over the labels of these recordings; `tokenizer` is the fingerprint of what made the tokens."""
        text = self.model.text_tokenizer
        return Settings(
            model=fingerprint_of(self.model.config.model_dump(mode="json"), self.model.exported()),
            tokenizer=tokenizer,
            recordings=digest(manifest.entries),
            text=None if text is None or self.gives_text else text.fingerprint(),
            beam_size=self.beam_size,
            batch_size=self.batch_size,
            threshold=threshold,
        )

    def read(self, rows: Sequence[np.ndarray]) -> Iterator[tuple[int, Label]]:
        """The number of each row with its label (whose path is empty), the shortest first."""
        order = sorted(range(len(rows)), key=lambda number: (len(rows[number]), number))
        while order and not len(rows[order[0]]):  # a decoder would make something up
            yield order.pop(0), Label(path="", reason="it has no tokens")
        for first in range(0, len(order), self.batch_size):
            numbers = order[first : first + self.batch_size]
            yield from zip(numbers, self._batch([rows[number] for number in numbers]), strict=True)

    @torch.no_grad()
    def _batch(self, rows: Sequence[np.ndarray]) -> list[Label]:
        ids = pad_sequence([torch.from_numpy(row).long() for row in rows], batch_first=True, padding_value=PAD)
        lengths = torch.tensor([len(row) for row in rows])
        if self.beam_size is None:
            made = self.model.read(ids)
        else:
            made = self.model.generate(
                ids,
                source_type="speech",
                target_type="text",
                # People say some fifteen letters a second; there are more tokens than that.
                max_length=20 + 2 * lengths,
                **self._search(),
            )
        confidences, ended = made.confidence.exp().tolist(), made.ended.tolist()
        return [self._label(*row) for row in zip(made.rows(), confidences, ended, strict=True)]

    def _search(self) -> dict[str, Any]:
        if self.beam_size == 1:
            return {"temperature": 0.0}
        return {"beam_search_decode": True, "beam_size": self.beam_size}

    def _label(self, ids: torch.Tensor, confidence: float, ended: bool) -> Label:
        tokenizer, own = self.model.text_tokenizer, ids.tolist()
        said: dict[str, Any] = {"path": "", "confidence": round(confidence, 6)}
        text = None if tokenizer is None else tokenizer.decode(own).strip(" \t\r\n")
        if self.gives_text:
            said["text"] = text
        else:
            said |= {"text_ids": own} if text is None else {"text_ids": own, "phonemes": text}
        if not ended:
            said["ended"] = False
        if not (own if text is None else text):
            said["reason"] = "nothing was read"
        return Label(**said)


def labels_of(reader: Reader, entries: Sequence[Entry], shards: TokenShards) -> list[Label]:
    """The labels of these recordings, in their order."""
    known = [entry for entry in entries if entry.path in shards]
    found = {path: Label(path=path, reason=reason) for path, reason in shards.failed.items()}
    for number, label in reader.read([shards.tokens(entry.path) for entry in known]):
        path = known[number].path
        found[path] = label.model_copy(update={"path": path})
    return [found[entry.path] for entry in entries]


class LabelMaker:
    """A worker: reads the parts that it is given jobs for, and writes what it read."""

    def __init__(self, run: str, shards: Path, folder: Path, options: dict[str, Any]) -> None:
        from madrigal.engine.machine import prepare_process

        prepare_process()
        self.reader = Reader(TextToSemantic.from_pretrained(run), **options)
        self.shards, self.folder = TokenShards.open(shards), folder

    def __call__(self, job: Job, is_over: Callable[[], bool] | None = None) -> None:
        if is_over is not None and is_over():
            raise KeyboardInterrupt
        entries = entries_of(job)
        with one_thread():
            write_part(self.folder, job["number"], entries, labels_of(self.reader, entries, self.shards))


@dataclass(frozen=True)
class Labelled:
    """What has passed, and how many recordings there were."""

    manifest: Manifest
    recordings: int

    @property
    def figures(self) -> dict[str, float]:
        """Recordings in all and passed, and the seconds of these."""
        return {"recordings": self.recordings, "passed": len(self.manifest), "seconds": self.manifest.seconds}

    @property
    def summary(self) -> str:
        hours, file = self.manifest.seconds / 3600, self.manifest.root / "manifest.jsonl"
        return f"{len(self.manifest)} of {self.recordings} readings passed, {hours:.2f} hours -> {file}"


def pseudo_label(
    run: str | Path,
    manifest: Manifest,
    folder: str | Path,
    *,
    threshold: float = THRESHOLD,
    beam_size: int | None = None,
    batch_size: int = 16,
    tokens: str | Path | None = None,
    tokenizer: str | None = None,
    workers: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Labelled:
    """Read the recordings of `manifest` with the model of a semantic-to-text run; `labels.py` says what is written.

    Started again with the same settings it goes on where it was. `tokens` is where `madrigal tokenize` wrote; without
    it the run's tokenizer makes them. `progress` is called with (recordings done, recordings in all).
    """
    if not len(manifest):
        raise UserError(f"The manifest in {manifest.root} names no recordings; prepare a folder that has some.")
    if not 0 <= threshold <= 1:
        raise UserError(f"The threshold is {threshold}; confidences go from 0 to 1.")
    run = reading_run(Path(run))
    reader = Reader(TextToSemantic.from_pretrained(run), beam_size=beam_size, batch_size=batch_size)
    fingerprint = learned_by(run).get("tokenizer") or _tokenizer(run, tokenizer).fingerprint()
    if tokens is not None:
        TokenShards.find(tokens, fingerprint, manifest)  # what is mistyped is told while the old labels are still there
    begin(folder, reader.settings(fingerprint, manifest, threshold), overwrite=overwrite)
    shards = _shards(manifest, fingerprint, tokens, lambda: _tokenizer(run, tokenizer), folder, workers)
    labels = LabelFolder(folder, manifest, TokenInfo(**shards.info.model_dump(include=set(TokenInfo.model_fields))))
    missing = labels.missing()
    jobs = [job_of(0, number, labels.parts[number]) for number in missing]
    done = len(manifest) - sum(len(labels.parts[number]) for number in missing)
    options = {"beam_size": beam_size, "batch_size": batch_size}
    if workers > 1 and len(jobs) > 1:
        setting = (str(run), shards.folder, labels.folder, options)
        finished = in_processes(jobs, setting, workers=min(workers, len(jobs)), maker=LabelMaker)
    else:
        finished = _here(reader, shards, labels, missing)
    for number in finished:
        done += len(labels.parts[number])
        if progress is not None:
            progress(done, len(manifest))
    return Labelled(labels.close(shards.tokens, threshold), len(manifest))


def _tokenizer(run: Path, named: str | None) -> Any:
    name = named or tokenizer_of(run)
    if not name:
        raise UserError(f"{run} does not say which semantic tokenizer it was trained with: name it with --tokenizer.")
    return load_tokenizer(name)


def _here(reader: Reader, shards: TokenShards, labels: LabelFolder, missing: Sequence[int]) -> Iterator[int]:
    for number in missing:
        with one_thread():
            labels.write_part(number, labels_of(reader, labels.parts[number], shards))
        yield number


def _shards(
    manifest: Manifest,
    fingerprint: str,
    tokens: str | Path | None,
    tokenizer: Callable[[], Any],
    folder: str | Path,
    workers: int,
) -> TokenShards:
    """The recordings' tokens where they lie on disk, or made now."""
    try:
        return TokenShards.find(manifest.root / "tokens" if tokens is None else tokens, fingerprint, manifest)
    except UserError:
        if tokens is not None:
            raise
    made_by = tokenizer()
    if made_by.fingerprint() != fingerprint:
        raise UserError(
            f"The reader was trained with the tokenizer {fingerprint}, and this one is {made_by.fingerprint()}: name "
            "the right one with --tokenizer."
        )
    return tokenize_manifest(manifest, [made_by], Path(folder) / UNTRANSCRIBED, workers=workers)[0].shards


def reading_run(run: Path) -> Path:
    """The run of the part that reads: itself, or a part of a whole run."""
    said = recipe_of(run)
    if said.get("system") == "speartts":
        read = said.get("read")
        if read is None:
            raise UserError(f"The run {run} has no part that reads speech: train one with semantic-to-text.")
        run = Path(read) if isinstance(read, str) else run / "read"
    if not run.exists():
        raise UserError(f"There is no run {run}; name one of semantic-to-text.")
    system = recipe_of(run).get("system", READS)
    if system != READS:
        raise UserError(f"{run} is a run of {system}, which has not learned to read: name one of {READS}.")
    return run
