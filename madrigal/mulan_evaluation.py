"""Judging a MuLaN: retrieval on held-out pairs, and tagging by prompts for the classes that a manifest names."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from madrigal.data.audio import read
from madrigal.data.manifest import Entry
from madrigal.data.source import manifest_of
from madrigal.engine.machine import prepare_process
from madrigal.errors import UserError
from madrigal.evaluation import held_out, known_to
from madrigal.judge.curves import read_curves, select
from madrigal.judge.retrieval import Hit, RetrievalReport, Tagging, judge_ranks, judge_tags, write_retrieval
from madrigal.musiclm.captions import captions_of, is_captioned
from madrigal.musiclm.embedding import embeddings_of_files, embeddings_of_texts
from madrigal.musiclm.mulan import MuLaN, labels_of, load_mulan
from madrigal.musiclm.retrieval import places, spread

CURVES = ("contrastive", "chance", "valid/loss", "valid/ema/loss")
PROMPTS = ("{}", "a {} tune", "a {} piece", "music played on a {}")
"""A class is the mean of these, as CLIP's are."""
MOST_CLASSES = 50
LISTENED = 5
SHOWN = 3


def evaluate_mulan(
    run: str | Path,
    *,
    data: Path | None = None,
    out: Path | None = None,
    limit: int = 500,
    tags: Sequence[str] | None = None,
    prompts: Sequence[str] = PROMPTS,
    device: str = "cpu",
    progress: Callable[..., None] | None = None,
) -> tuple[RetrievalReport, Path]:
    """Judge on pairs that the run has not seen, and write report.json and report.html.

    `tags` are fields of the manifest that name a class, such as instrument; None takes those that look like one.
    """
    prepare_process()
    mulan = load_mulan(run, device=device)
    folder = out or Path(run) / "evaluation"
    manifest = manifest_of(data, folder / "data", anew=True) if data is not None else held_out(Path(run), is_captioned)
    entries = [entry for entry in manifest if is_captioned(entry)][:limit]
    if len(entries) < 2:
        raise UserError(f"{manifest.root} holds {len(entries)} recordings with a caption; give at least two.")
    files = [manifest.resolve(entry) for entry in entries]
    audio = embeddings_of_files(mulan, files, progress=progress)
    texts = [captions_of(entry)[0] for entry in entries]
    text = embeddings_of_texts(mulan, texts)
    labels = labels_of(texts)
    rights = (labels[:, None] == labels).sum(1).tolist()
    found = {"sound to text": places(audio, text, labels), "text to sound": places(text, audio, labels)}
    report = RetrievalReport(
        title=f"{Path(run).name} on {len(entries)} pairs",
        pairs=len(entries),
        texts=len(set(texts)),
        ways=[judge_ranks(name, where.tolist(), rights) for name, where in found.items()],
        alignment=float((audio * text).sum(1).mean()),
        spread={"sounds": spread(audio), "texts": spread(text)},
        taggings=[tagging(mulan, entries, audio, name, prompts) for name in class_fields(entries, tags)],
        hits=_hits(entries, texts, audio, text, found["text to sound"]),
        notes=[
            f"Trained on clips; a longer recording is the mean of its pieces. Model {mulan.fingerprint()}.",
            *([] if data is None else known_to(Path(run), folder / "data" / "run", files)),
        ],
    )
    heard = {name for hit in report.hits for name in hit.found}
    sounds = {
        entry.path: (read(file, channels=1).numpy(), entry.sample_rate)
        for entry, file in zip(entries, files, strict=True)
        if entry.path in heard
    }
    report = report.model_copy(update={"sounds": sounds})
    curves = select(read_curves(run), CURVES) if (Path(run) / "metrics.jsonl").exists() else []
    write_retrieval(report, folder, curves)
    return report, folder


def class_fields(entries: Sequence[Entry], asked: Sequence[str] | None) -> list[str]:
    """The fields of a manifest that name a class: those asked for, or all beyond the usual that have a few values."""
    more = [entry.model_extra or {} for entry in entries]
    if asked is not None:
        for name in asked:
            if not all(isinstance(fields.get(name), str) for fields in more):
                known = ", ".join(sorted({key for fields in more for key in fields})) or "none"
                raise UserError(f"Not every recording has a field {name!r} of the manifest; there is {known}.")
        return list(asked)
    names = sorted(set.intersection(*(set(fields) for fields in more)))
    return [name for name in names if _is_class(name, more)]


def _is_class(name: str, more: Sequence[Mapping[str, Any]]) -> bool:
    values = [fields[name] for fields in more]
    if not all(isinstance(value, str) for value in values):
        return False
    counts = Counter(values)
    return 2 <= len(counts) <= min(MOST_CLASSES, len(values) // 2)


def tagging(mulan: MuLaN, entries: Sequence[Entry], audio: Tensor, field: str, prompts: Sequence[str]) -> Tagging:
    """Each sound [n, dim] has the class whose prompts are nearest."""
    true = [str((entry.model_extra or {})[field]) for entry in entries]
    classes = sorted(set(true))
    means = torch.stack(
        [embeddings_of_texts(mulan, [prompt.format(name) for prompt in prompts]).mean(0) for name in classes]
    )
    nearest = (audio @ torch.nn.functional.normalize(means, dim=1).T).argmax(1).tolist()
    return judge_tags(field, classes, true, [classes[place] for place in nearest])


def _hits(entries: Sequence[Entry], texts: Sequence[str], audio: Tensor, text: Tensor, where: Tensor) -> list[Hit]:
    """The first few texts, and what they find."""
    first = list(range(min(LISTENED, len(entries))))
    nearest = (text[first] @ audio.T).topk(min(SHOWN, len(entries))).indices.tolist()
    return [
        Hit(text=texts[i], found=[entries[place].path for place in row], rank=float(where[i]) + 1)
        for i, row in zip(first, nearest, strict=True)
    ]
