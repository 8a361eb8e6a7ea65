"""Back-translation: what is kept, what is put aside, and that a kill or a second run costs nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from torch import Tensor
from untranscribed import INFO, LETTERS, reader, reading_run, speech

from madrigal.data import token_writing
from madrigal.data.manifest import Manifest
from madrigal.data.prepare import prepare
from madrigal.data.tokens import PAD, TokenShards
from madrigal.errors import UserError
from madrigal.speartts.generated import GeneratedAudioTextDataset, SemanticToTextDatasetGenerator
from madrigal.speartts.labels import Label
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pseudo_label import Labelled, Reader, pseudo_label
from madrigal.tokenizers.text import TextSpec, make_text_tokenizer
from madrigal.verbs.pseudo_label import pseudo_label as pseudo_label_verb


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_writing, "SHARD_ENTRIES", 3)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return reading_run(tmp_path / "run")


def label(run: Path, manifest: Manifest, folder: Path, **options: Any) -> Labelled:
    return pseudo_label(run, manifest, folder, **{"threshold": 0.0, "beam_size": 2, "batch_size": 2, **options})


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def confidences(run: Path, manifest: Manifest, folder: Path) -> list[float]:
    """Of all readings that have an end, the surest last."""
    made = label(run, manifest, folder, threshold=0.01).manifest
    return sorted((entry.model_extra or {})["confidence"] for entry in made)


def test_what_passes_and_what_does_not(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech", damaged=(4,))
    known = confidences(run, manifest, tmp_path / "all")
    middle = known[len(known) // 2]
    done = label(run, manifest, tmp_path / "out", threshold=middle)
    kept, rejected = lines(tmp_path / "out/manifest.jsonl"), lines(tmp_path / "out/rejected.jsonl")
    assert [entry["confidence"] >= middle for entry in kept] == [True] * len(kept)
    assert len(kept) == len(known) - len(known) // 2 == len(done.manifest)
    assert sorted(Path(e["path"]).name for e in kept + rejected) == [f"{n}.wav" for n in range(10)]
    for entry in kept:
        assert entry["text"]
        assert entry["speaker"] == "ada"
        assert Path(entry["path"]) == (tmp_path / "speech" / Path(entry["path"]).name)
    reasons = {Path(entry["path"]).name: entry["reason"] for entry in rejected}
    assert reasons["4.wav"] == "its data is damaged"
    assert f"the confidence is below {middle:g}" in reasons.values()
    assert "the text has no end" in reasons.values()


def test_a_threshold_of_nothing_keeps_all_that_was_read(run: Path, tmp_path: Path) -> None:
    label(run, speech(tmp_path / "speech", damaged=(4,)), tmp_path / "out")
    assert {entry["reason"] for entry in lines(tmp_path / "out/rejected.jsonl")} <= {
        "its data is damaged",
        "nothing was read",
    }


def test_an_empty_text_is_no_pair_however_sure(tmp_path: Path) -> None:
    model = reader(ctc_loss_weight=1.0)
    assert model.ctc is not None
    with torch.no_grad():  # it reads blanks, and is sure of them
        model.ctc.project.weight.zero_()
        model.ctc.project.bias.unflatten(0, (-1, model.ctc.size + 1))[:, -1] = 50.0
    found = dict(Reader(model).read([torch.arange(4).numpy()]))
    assert found[0].confidence == 1.0
    assert found[0].rejected_for(0.0) == "nothing was read"


@pytest.mark.parametrize("system", ["speech-speech", "text-to-semantic"])
def test_a_run_that_has_not_learned_to_read_is_refused(run: Path, tmp_path: Path, system: str) -> None:
    (run / "recipe.yaml").write_text(f"system: {system}\n")
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "recipe.yaml").write_text(f"system: speartts\nread: {run}\n")
    for named in (run, whole):
        with pytest.raises(UserError, match=f"is a run of {system}, which has not learned to read"):
            label(named, speech(tmp_path / "speech"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_reader_that_does_not_say_its_tokenizer_takes_none_that_lies_about(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "recipe.yaml").unlink()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"does not say which semantic tokenizer .*: name it with --tokenizer"):
        label(run, speech(tmp_path / "speech"), tmp_path / "out")


def test_phonemes_are_labels_as_ids_and_are_not_read_again_as_letters(tmp_path: Path) -> None:
    """ "kæt" spelled out would be said "kˈiːt"."""
    from spear_trainings import make

    text = {"kind": "phonemes"}
    size = make_text_tokenizer(TextSpec(kind="phonemes")).size
    run = reading_run(tmp_path / "run", text=text, num_text_token_ids=size, ctc_loss_weight=1.0)
    manifest = label(run, speech(tmp_path / "speech"), tmp_path / "out", beam_size=None).manifest
    model = TextToSemantic.from_pretrained(run)
    assert model.text_tokenizer is not None
    for entry in manifest:
        said = entry.model_extra or {}
        assert entry.text is None
        assert said["phonemes"] == model.text_tokenizer.decode(said["text_ids"]).strip()
    options = {"generated_audio_text_dataset_folder": tmp_path / "out", "generated_ratio": 0.5}
    sizes = {"num_semantic_token_ids": INFO.codebook_size}
    pairs = [(torch.arange(4) + n, "so far") for n in range(6)]
    trainer = make("text-to-semantic", tmp_path / "speak", model={**sizes, "text": text}, dataset=pairs, **options)
    real = model.text_tokenizer.encode("so far")
    wanted = {tuple((entry.model_extra or {})["text_ids"]) for entry in manifest} | {tuple(real)}
    batch = trainer.data.feed("all turns").micro_batches(0)[0]
    for ids, length in zip(batch["text_ids"], batch["text_lengths"].tolist(), strict=True):
        assert tuple(ids[:length].tolist()) in wanted
    trainer.train_step()
    for other in ({"kind": "bytes"}, {"kind": "phonemes", "language": "de"}):
        with pytest.raises(UserError, match="hold phonemes, which are no text that could be read again"):
            make("text-to-semantic", tmp_path / "b", model={**sizes, "text": other}, dataset=pairs, **options)


def test_the_manifest_of_another_folder_of_that_name_stays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name / "speech").mkdir(parents=True)
        soundfile.write(tmp_path / name / f"speech/{name}.wav", 0.1 * torch.randn(16000).numpy(), 16000)
    prepare(Path("a/speech"), Path("prepared/speech"))
    before = files(tmp_path / "prepared")
    with pytest.raises(UserError, match=r"prepared/speech holds the manifest of other recordings .*a\.wav"):
        pseudo_label_verb(run, Path("b/speech"), Path("out"), tokenizer="nowhere")
    assert files(tmp_path / "prepared") == before
    with pytest.raises(UserError, match="nowhere"):  # its own is looked through again
        pseudo_label_verb(run, Path("a/speech"), Path("out"), tokenizer="nowhere", workers=1)


def test_tokens_lie_beside_and_are_those_of_the_recordings(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech")
    source = TokenShards.find(tmp_path / "speech/tokens", INFO.fingerprint, manifest)
    made = label(run, manifest, tmp_path / "out").manifest
    shards = TokenShards.find(tmp_path / "out", INFO.fingerprint, made)
    for entry in made:
        assert shards.tokens(entry.path).tolist() == source.tokens(Path(entry.path).name).tolist()


def test_the_text_is_what_the_model_reads(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech", 4)
    source = TokenShards.find(tmp_path / "speech/tokens", INFO.fingerprint, manifest)
    model = reader()
    assert model.text_tokenizer is not None
    made = label(run, manifest, tmp_path / "out").manifest
    for entry in made:
        ids = torch.from_numpy(source.tokens(Path(entry.path).name))[None]
        alone = model.generate(
            ids,
            source_type="speech",
            target_type="text",
            beam_search_decode=True,
            beam_size=2,
            max_length=20 + 2 * ids.shape[1],
        )
        assert entry.text == model.text_tokenizer.decode(alone.ids[0].tolist()).strip()
        assert (entry.model_extra or {})["confidence"] == pytest.approx(float(alone.confidence[0].exp()), abs=1e-4)


def test_a_kill_at_any_instant_changes_no_byte(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = speech(tmp_path / "speech")

    def quick(self: Reader, rows: Any) -> list[Label]:
        return [Label(path="", text="".join(map(str, row)), confidence=1 / len(row)) for row in rows]

    monkeypatch.setattr(Reader, "_batch", quick)
    label(run, manifest, tmp_path / "whole")
    wanted, renamed = files(tmp_path / "whole"), os.replace
    for steps in range(1, 20):
        left = steps

        def dies(*paths: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            renamed(*paths)

        monkeypatch.setattr(os, "replace", dies)
        try:
            label(run, manifest, tmp_path / str(steps))
            break
        except KeyboardInterrupt:
            monkeypatch.setattr(os, "replace", renamed)
            assert not (tmp_path / str(steps) / "manifest.jsonl").exists() or steps > 8
            label(run, manifest, tmp_path / str(steps))
            assert files(tmp_path / str(steps)) == wanted
    assert steps > 8


def test_what_was_read_is_not_read_again(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = speech(tmp_path / "speech")
    label(run, manifest, tmp_path / "out")
    before = files(tmp_path / "out")
    monkeypatch.setattr(Reader, "read", None)
    label(run, manifest, tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_processes_write_what_one_process_writes(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech")
    label(run, manifest, tmp_path / "one")
    label(run, manifest, tmp_path / "two", workers=2)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_a_mistake_costs_no_labels(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech")
    label(run, manifest, tmp_path / "labels")
    before = files(tmp_path / "labels")
    with pytest.raises(UserError, match="holds no finished tokens"):
        label(run, manifest, tmp_path / "labels", beam_size=3, tokens=tmp_path / "mistyped", overwrite=True)
    assert files(tmp_path / "labels") == before


def test_labels_that_replace_others_have_tokens_of_their_own(run: Path, tmp_path: Path) -> None:
    label(run, speech(tmp_path / "speech", count=8), tmp_path / "labels")
    made = label(run, speech(tmp_path / "less", count=4), tmp_path / "labels", overwrite=True).manifest
    assert len(list((tmp_path / "labels").glob("*/tokens.json"))) == 1
    assert TokenShards.find(tmp_path / "labels", "*", made).info.entries == len(made)


def test_a_text_that_was_not_read_is_no_label(tmp_path: Path) -> None:
    size = make_text_tokenizer(TextSpec(kind="phonemes")).size
    reads = reading_run(tmp_path / "run", text={"kind": "phonemes"}, num_text_token_ids=size)
    manifest = speech(tmp_path / "speech")
    entries = [entry.model_copy(update={"text": "What it really says."}) for entry in manifest]
    made = label(reads, Manifest(manifest.root, entries), tmp_path / "labels").manifest
    assert all(entry.text is None for entry in made)
    assert all("phonemes" in (entry.model_extra or {}) for entry in made)


def test_SP12_nothing_is_overwritten_unasked(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = speech(tmp_path / "speech")
    known = confidences(run, manifest, tmp_path / "out")
    before = files(tmp_path / "out")
    with pytest.raises(UserError, match="read with another threshold: name another folder"):
        label(run, manifest, tmp_path / "out", threshold=known[-1])
    with pytest.raises(UserError, match="read with another beam"):
        label(run, manifest, tmp_path / "out", beam_size=3)
    with pytest.raises(UserError, match="read with another set of recordings"):
        label(run, speech(tmp_path / "more", 12), tmp_path / "out")
    with pytest.raises(UserError, match="read with another model"):
        label(reading_run(tmp_path / "other", dim=24), manifest, tmp_path / "out")
    assert files(tmp_path / "out") == before
    # Another threshold needs no other reading.
    monkeypatch.setattr(Reader, "read", None)
    done = label(run, manifest, tmp_path / "out", threshold=known[-1], overwrite=True)
    assert [(entry.model_extra or {})["confidence"] for entry in done.manifest] == [known[-1]]


@pytest.mark.parametrize("name", ["settings.json", "manifest.jsonl", "rejected.jsonl"])
def test_a_file_of_somebody_else_stays(run: Path, tmp_path: Path, name: str) -> None:
    manifest, folder = speech(tmp_path / "speech"), tmp_path / "theirs"
    folder.mkdir()
    (folder / name).write_text('{"theirs": 1}\n')
    before = files(folder)
    with pytest.raises(UserError, match=f"is not empty .it holds {name}"):
        label(run, manifest, folder)
    with pytest.raises(UserError, match="is there already, and is not known to be of labels"):
        label(run, manifest, folder, overwrite=True)
    assert files(folder) == before


def test_a_folder_of_somebody_else_is_written_to_when_asked(run: Path, tmp_path: Path) -> None:
    manifest, folder = speech(tmp_path / "speech"), tmp_path / "theirs"
    (folder / "read").mkdir(parents=True)
    for name in ("notes.txt", "read/notes.jsonl"):
        (folder / name).write_text("theirs")
    with pytest.raises(UserError, match="is not empty"):
        label(run, manifest, folder)
    label(run, manifest, folder, overwrite=True)
    label(run, manifest, tmp_path / "alone")
    theirs = {"notes.txt": b"theirs", "read/notes.jsonl": b"theirs"}
    assert files(folder) == {**files(tmp_path / "alone"), **theirs}


@pytest.mark.parametrize("damage", ["missing", "unreadable"])
def test_what_was_read_by_nobody_knows_whom_is_read_again(run: Path, tmp_path: Path, damage: str) -> None:
    manifest, folder = speech(tmp_path / "speech"), tmp_path / "out"
    label(reading_run(tmp_path / "other", dim=24), manifest, folder)
    if damage == "missing":
        (folder / "settings.json").unlink()
    else:
        (folder / "settings.json").write_text('{"mod')
    before = files(folder)
    with pytest.raises(UserError, match=r"no settings\.json says which labels it holds"):
        label(run, manifest, folder)
    assert files(folder) == before
    label(run, manifest, folder, overwrite=True)
    label(run, manifest, tmp_path / "alone")
    assert (folder / "manifest.jsonl").read_bytes() == (tmp_path / "alone/manifest.jsonl").read_bytes()


def test_labels_do_not_go_among_the_recordings(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech")
    manifest.write(tmp_path / "speech/manifest.jsonl")
    before = files(tmp_path / "speech")
    for named in (tmp_path / "speech", tmp_path / "speech/manifest.jsonl"):
        for out in (tmp_path / "speech", tmp_path / "speech/labels"):
            with pytest.raises(UserError, match="the folder of the recordings: name one outside of it"):
                pseudo_label_verb(run, named, out)
    assert files(tmp_path / "speech") == before


def test_when_nothing_passes_the_best_is_told(run: Path, tmp_path: Path) -> None:
    manifest = speech(tmp_path / "speech")
    best = confidences(run, manifest, tmp_path / "all")[-1]
    with pytest.raises(UserError, match=f"No reading has a confidence of 1, and the best has {best:.3f}: lower"):
        label(run, manifest, tmp_path / "out", threshold=1.0)
    assert len(lines(tmp_path / "out/rejected.jsonl")) == 10
    assert not (tmp_path / "out/manifest.jsonl").exists()


def test_the_wrong_tokens_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished tokens"):
        label(run, speech(tmp_path / "speech"), tmp_path / "out", tokens=tmp_path)
    with pytest.raises(UserError, match="confidences go from 0 to 1"):
        label(run, speech(tmp_path / "speech"), tmp_path / "out", threshold=2.0)
    with pytest.raises(UserError, match="There is no run"):
        label(tmp_path / "nowhere", speech(tmp_path / "speech"), tmp_path / "out")


# The older names, over the same files.


def items(count: int = 5) -> list[tuple[Tensor]]:
    """Semantic ids, one of them padded as a batch would pad it."""
    rows = [torch.arange(3 * n, 3 * n + 8) % INFO.codebook_size for n in range(count)]
    return [(row,) if n else (torch.cat((row, torch.full((3,), PAD))),) for n, row in enumerate(rows)]


@pytest.mark.parametrize("kind", ["text", "ids"])
def test_SP12_a_dataset_becomes_pairs(tmp_path: Path, kind: str) -> None:
    """Padding neither splits a row nor is it a code, and what is text stays text."""
    model = reader(**(LETTERS if kind == "text" else {"text": None}))
    generate = SemanticToTextDatasetGenerator(model, dataset=items(), folder=tmp_path / "pairs", delimiter_id=-1)
    done = generate(beam_size=2)
    pairs = GeneratedAudioTextDataset(tmp_path / "pairs", delimiter_id=-1)
    assert len(pairs) == len(done) > 0
    for (speech_ids, text), entry in zip([pairs[n] for n in range(len(pairs))], done, strict=True):
        ids = items()[int(entry.path.partition("-")[0])][0]
        assert speech_ids.tolist() == ids[ids != PAD].tolist()
        assert isinstance(text, str) if kind == "text" else text.dtype == torch.int64
        if kind == "ids":
            assert bool((text < model.end("text")).all()), "the end is no part of a text"


def test_SP12_a_second_dataset_does_not_replace_the_first(tmp_path: Path) -> None:
    model = reader()
    SemanticToTextDatasetGenerator(model, dataset=items(), folder=tmp_path / "pairs")()
    before = files(tmp_path / "pairs")
    with pytest.raises(UserError, match="another set of recordings"):
        SemanticToTextDatasetGenerator(model, dataset=items(7), folder=tmp_path / "pairs")()
    assert files(tmp_path / "pairs") == before
    with pytest.raises(UserError, match="has text_pad_id=0 only, not 5"):
        SemanticToTextDatasetGenerator(model, dataset=items(), folder=tmp_path, text_pad_id=5)
    with pytest.raises(UserError, match="Waves need a semantic tokenizer"):
        SemanticToTextDatasetGenerator(model, dataset=[torch.randn(800)], folder=tmp_path / "waves")()


def test_a_dataset_of_the_same_shapes_is_another(tmp_path: Path) -> None:
    model, folder = reader(), tmp_path / "pairs"
    first, second = ([torch.full((8,), value), torch.arange(8)] for value in (2, 5))
    SemanticToTextDatasetGenerator(model, dataset=first, folder=folder)()
    before = files(folder)
    with pytest.raises(UserError, match="another set of recordings"):
        SemanticToTextDatasetGenerator(model, dataset=second, folder=folder)()
    assert files(folder) == before
    SemanticToTextDatasetGenerator(model, dataset=second, folder=folder)(overwrite=True)
    alone = tmp_path / "alone"
    SemanticToTextDatasetGenerator(model, dataset=second, folder=alone)()
    assert (folder / "manifest.jsonl").read_bytes() == (alone / "manifest.jsonl").read_bytes()
    for mine, theirs in zip(*map(GeneratedAudioTextDataset, (folder, alone)), strict=True):
        assert mine[0].tolist() == theirs[0].tolist()
        assert mine[1] == theirs[1]


def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    SemanticToTextDatasetGenerator(reader(), dataset=items(), folder=tmp_path)()
    with pytest.raises(UserError, match="GeneratedAudioTextDataset has no option delimiter; it takes folder"):
        GeneratedAudioTextDataset(tmp_path, delimiter=-1)
