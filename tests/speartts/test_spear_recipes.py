"""The recipes: from recordings or tokens on disk, from a start, with each kind of text."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml

from madrigal.data.manifest import Manifest
from madrigal.data.prepare import prepare
from madrigal.errors import UserError
from madrigal.speartts.model import TextToSemantic
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig
from madrigal.tokenizers.tokenizing import tokenize_manifest
from madrigal.verbs.systems import load_recipe, model_class

SYSTEMS = ("speech-speech", "semantic-to-text", "text-to-semantic")
STEPS = ("plan.num_train_steps=2", "plan.save_results_every=2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """said/ (six recordings, one without a text), its manifest in prepared/, tokens/ and the tokenizer/ of these."""
    folder = tmp_path_factory.mktemp("corpus")
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=20))
    tokenizer.centroids.normal_()
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "said").mkdir()
    for number in range(6):
        rng = np.random.default_rng(number)
        soundfile.write(folder / "said" / f"{number}.wav", 0.1 * rng.standard_normal(8000 + 800 * number), 16000)
        if number:
            (folder / "said" / f"{number}.txt").write_text("far away hills ring " * (number % 2 + 1))
    prepare(folder / "said", folder / "prepared")
    tokenize_manifest(Manifest.load(folder / "prepared"), [str(folder / "tokenizer")], folder / "tokens")
    return folder


def recipe(corpus: Path, system: str, *overrides: str, data: str = "prepared") -> Any:
    given = [f"data={corpus / data}", f"tokenizer={corpus / 'tokenizer'}", *STEPS, *overrides]
    return load_recipe(f"{system}/tiny", given)


def first_batch(trainer: Any) -> dict[str, Any]:
    batch: dict[str, Any] = trainer.data.feed("all turns").micro_batches(0)[0]
    return batch


@pytest.mark.parametrize("system", SYSTEMS)
def test_tokens_on_disk_are_those_of_the_recordings(corpus: Path, tmp_path: Path, system: str) -> None:
    batches = {}
    for way, overrides in {"audio": (), "tokens": (f"data.tokens={corpus / 'tokens'}",)}.items():
        whole = ("data.max_length_seconds=null",) if system == "speech-speech" else ()
        trainer = recipe(corpus, system, *whole, *overrides).trainer(tmp_path / way)
        torch.manual_seed(0)
        batches[way] = trainer.wrapper.pair(first_batch(trainer))
    for heard, read in zip(*batches.values(), strict=True):
        assert torch.equal(heard.ids, read.ids)
        assert torch.equal(heard.lengths, read.lengths)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_can_be_followed_again_and_resumed(corpus: Path, tmp_path: Path, system: str) -> None:
    trainer = recipe(corpus, system).trainer(tmp_path / "run").train()
    assert model_class(str(tmp_path / "run")) is TextToSemantic
    kept = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert kept["fingerprints"] == {"tokenizer": trainer.wav2vec.fingerprint()}
    again = load_recipe(str(tmp_path / "run" / "recipe.yaml"), []).trainer(tmp_path / "again").train()
    for key, tensor in trainer.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], tensor), key
    more = load_recipe(str(tmp_path / "run" / "recipe.yaml"), ["plan.num_train_steps=3"])
    assert more.trainer(tmp_path / "run", resume=True).train().step == 3


def test_recordings_without_a_text_are_left_out_and_told(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = recipe(corpus, "semantic-to-text").trainer(tmp_path)
    assert len(trainer.data.train) + len(trainer.data.valid) == 5
    assert "1 of 6 recordings" in capsys.readouterr().err
    assert len(recipe(corpus, "speech-speech").trainer(tmp_path / "b").data.train.dataset) == 6


@pytest.fixture(scope="module")
def pretrained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("pretrained") / "run"
    recipe(corpus, "speech-speech").trainer(run).train()
    return run


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_training_starts_from_pretraining(corpus: Path, tmp_path: Path, system: str, pretrained: Path) -> None:
    """Sizes follow from the start, and what the task keeps is what pretraining learned."""
    overrides = ["model={target_early_exit_layer: 1}", f"start={pretrained}"]
    made = recipe(corpus, system, *overrides).trainer(tmp_path)
    there = TextToSemantic.from_pretrained(pretrained)
    assert made.model.config.dim == there.config.dim
    assert made.model.config.target_early_exit_layer == 1
    for mine, theirs in (
        (made.model.encoder, there.encoder),
        (made.model.lower.layers[0], there.upper.layers[0]),
        (made.model.upper.layers[0], there.upper.layers[1]),
        (made.model.tables, there.tables),
    ):
        for key, tensor in theirs.state_dict().items():
            assert torch.equal(mine.state_dict()[key], tensor), key
    assert not all(parameter.requires_grad for parameter in made.model.encoder.parameters())
    made.train()
    kept = yaml.safe_load((tmp_path / "recipe.yaml").read_text())
    assert kept["start"] == str(pretrained)
    assert kept["model"]["dim"] == 32


def test_another_text_vocabulary_begins_anew(corpus: Path, tmp_path: Path, pretrained: Path) -> None:
    overrides = [f"start={pretrained}", "model={text: {kind: characters}}"]
    made = recipe(corpus, "semantic-to-text", *overrides).trainer(tmp_path)
    there = TextToSemantic.from_pretrained(pretrained)
    assert made.model.end("text") != there.end("text")
    assert torch.equal(made.model.tables["speech"].weight, there.tables["speech"].weight)


@pytest.mark.parametrize("text", ["{kind: characters}", "{kind: characters, alphabet: ' zyxwvutsrqponmlkjihgfedcba'}"])
def test_a_reader_of_another_text_gives_nothing_of_its_text(corpus: Path, tmp_path: Path, text: str) -> None:
    """Neither of another size nor of the same size, where its letters mean others."""
    letters = "model.text={kind: characters, alphabet: ' abcdefghijklmnopqrstuvwxyz'}"
    reads = ["model.ctc_loss_weight=1", "model.target_early_exit_layer=null"]
    recipe(corpus, "semantic-to-text", *reads, letters).trainer(tmp_path / "first").train()
    there = TextToSemantic.from_pretrained(tmp_path / "first")
    for name, spec in (("other", f"model.text={text}"), ("same", letters)):
        options = [*reads, spec, f"start={tmp_path / 'first'}", "plan.seed=7"]
        made = recipe(corpus, "semantic-to-text", *options).trainer(tmp_path / name).model
        assert torch.equal(made.tables["speech"].weight, there.tables["speech"].weight)
        for mine, theirs in (
            (made.ctc.project.weight, there.ctc.project.weight),
            (made.starts["text"], there.starts["text"]),
        ):
            assert (mine.shape == theirs.shape and torch.equal(mine, theirs)) == (name == "same")


@pytest.mark.parametrize("what", ["run", "checkpoint"])
def test_a_start_of_another_tokenizer_is_refused(corpus: Path, tmp_path: Path, pretrained: Path, what: str) -> None:
    """One of as many clusters: its ids would be taken, and mean other sounds."""
    torch.manual_seed(1)
    other = MelKmeans(MelKmeansConfig(codebook_size=20))
    other.centroids.normal_()
    other.save_pretrained(tmp_path / "tokenizer")
    start = pretrained if what == "run" else next((pretrained / "checkpoints").iterdir())
    given = [f"start={start}", f"tokenizer={tmp_path / 'tokenizer'}"]
    with pytest.raises(UserError, match="has learned the tokens of another tokenizer"):
        recipe(corpus, "text-to-semantic", *given).trainer(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_start_of_another_size_is_refused(corpus: Path, tmp_path: Path, pretrained: Path) -> None:
    with pytest.raises(UserError, match=r"has dim 32, and this model has 64: give it model\.dim=32"):
        recipe(corpus, "text-to-semantic", "model.dim=64", f"start={pretrained}").trainer(tmp_path)


@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_without_a_start_everything_learns(corpus: Path, tmp_path: Path, system: str) -> None:
    made = recipe(corpus, system).trainer(tmp_path / "a")
    assert all(parameter.requires_grad for parameter in made.model.parameters())
    # What the recipe says of freezing is about a start.
    said = {"semantic-to-text": "plan.freeze_encoder=true", "text-to-semantic": "plan.tuned_encoder_layers=1"}[system]
    made = recipe(corpus, system, said).trainer(tmp_path / "b")
    assert all(parameter.requires_grad for parameter in made.model.parameters())


@pytest.mark.parametrize("size", ["tiny", "cpu", "paper"])
@pytest.mark.parametrize("system", SYSTEMS[1:])
def test_without_a_start_no_recipe_freezes_anything(system: str, size: str) -> None:
    plan = load_recipe(f"{system}/{size}", ["data=nowhere", "start=null"]).plan
    assert not getattr(plan, "freeze_encoder", False)
    assert getattr(plan, "tuned_encoder_layers", None) is None


def test_pairs_of_letters_cannot_be_learned_where_there_are_no_texts(corpus: Path, tmp_path: Path) -> None:
    unsaid = tmp_path / "unsaid"
    unsaid.mkdir()
    shutil.copy(corpus / "said" / "0.wav", unsaid)
    made = recipe(corpus, "speech-speech", "model.text={kind: bpe}", f"data={unsaid}")
    with pytest.raises(UserError, match=r"Text of kind bpe is learned from texts, and no recording of .* has one"):
        made.trainer(tmp_path / "run")


def test_byte_pairs_are_learned_from_the_texts_and_kept(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    text = "model.text={kind: bpe, vocabulary: 262}"
    trainer = recipe(corpus, "semantic-to-text", text).trainer(tmp_path / "run").train()
    assert 256 < trainer.model.end("text") <= 262
    again = TextToSemantic.from_pretrained(tmp_path / "run")
    assert again.text_tokenizer is not None
    assert again.text_tokenizer.decode(again.text_tokenizer.encode("far away")) == "far away"
    kept = load_recipe(str(tmp_path / "run" / "recipe.yaml"), [])
    assert len(kept.model["text"]["merges"]) == trainer.model.end("text") - 256
    plain = recipe(corpus, "semantic-to-text", text, data="said").trainer(tmp_path / "plain")
    assert plain.model.config == trainer.model.config


def test_a_text_that_cannot_be_said_is_told_before_training(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which the characters tokenizer cannot say"):
        recipe(corpus, "semantic-to-text", "model.text={kind: characters, alphabet: abc}").trainer(tmp_path)


@pytest.mark.parametrize(
    ("system", "override", "said"),
    [
        ("semantic-to-text", "data.max_length_seconds=1", "learned whole"),
        ("speech-speech", "model.dimension=3", "has no key 'dimension'"),
        ("speech-speech", "plan.mask_id=3", "needs reconstruct_seq"),
        ("speech-speech", "model.ctc_loss_weight=1", "is of semantic-to-text alone"),
        ("text-to-semantic", "model.ctc_loss_weight=1", "is of semantic-to-text alone"),
        ("semantic-to-text", "data.generated=x", "has no key"),
        ("text-to-semantic", "data.generated_ratio=1.5", "less than 1"),
        ("text-to-semantic", "data.generated_ratio=0.5", "name their folder with generated"),
        ("text-to-semantic", "start=./nowhere", "no model"),
    ],
)
def test_mistakes_are_told_in_a_sentence(corpus: Path, tmp_path: Path, system: str, override: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        recipe(corpus, system, override).trainer(tmp_path)


def labelled(corpus: Path, folder: Path, name_of: Callable[[Path], Path]) -> Path:
    """A manifest with texts, and tokens beside it, of copies of the recordings of the corpus or of themselves."""
    manifest = Manifest.load(corpus / "prepared")
    folder.mkdir()
    entries = []
    for entry in manifest:
        if entry.text:
            path = name_of(manifest.resolve(entry))
            if not path.exists():
                shutil.copy(manifest.resolve(entry), path)
            entries.append(entry.model_copy(update={"path": os.path.relpath(path, folder)}))
    Manifest(folder, entries).write(folder / "manifest.jsonl")
    tokenize_manifest(Manifest.load(folder), [str(corpus / "tokenizer")], folder)
    return folder


def test_generated_pairs_of_a_folder_join_the_real_ones(corpus: Path, tmp_path: Path) -> None:
    folder = labelled(corpus, tmp_path / "labelled", lambda path: tmp_path / "labelled" / path.name)
    mix = [f"data.tokens={corpus / 'tokens'}", f"data.generated={folder}", "data.generated_ratio=0.5"]
    made = recipe(corpus, "text-to-semantic", *mix).trainer(tmp_path / "run")
    assert len(made.data.train) == 10
    assert len(made.data.valid) == 1
    made.train()
    with pytest.raises(UserError, match="so must the recordings"):
        recipe(corpus, "text-to-semantic", *mix[1:])


def test_recordings_that_are_held_out_or_real_are_not_learned_from_with_a_generated_text(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the five, 1 and 2 are real, 3 is validated on, and 4 and 5 are new."""
    manifest = Manifest.load(corpus / "prepared")
    for name, numbers in (("real", "12"), ("held-out", "3")):
        chosen = [e for e in manifest if Path(e.path).stem in numbers]
        (tmp_path / name).mkdir()
        paths = [e.model_copy(update={"path": str(manifest.resolve(e).resolve())}) for e in chosen]
        Manifest(tmp_path / name, paths).write(tmp_path / name / "manifest.jsonl")
        tokenize_manifest(Manifest.load(tmp_path / name), [str(corpus / "tokenizer")], tmp_path / "tokens")
    folder = labelled(corpus, tmp_path / "labelled", lambda path: path)
    given = [f"data.tokens={tmp_path / 'tokens'}", f"data.valid_path={tmp_path / 'held-out'}"]
    given += [f"data.path={tmp_path / 'real'}", f"data.generated={folder}"]
    made = recipe(corpus, "text-to-semantic", *given).trainer(tmp_path / "run")
    assert "3 of 5 generated pairs" in capsys.readouterr().err
    assert len(made.data.train) == 4
    generated = made.data.train.datasets[1]
    names = [Path(generated.dataset.manifest.entries[index].path).stem for index in generated.indices]
    assert sorted(names) == ["4", "5"]
    made.train()


@pytest.mark.parametrize("kept", ["a checkpoint", "nothing"])
def test_a_run_goes_on_without_its_start_once_it_has_learned(
    corpus: Path, tmp_path: Path, pretrained: Path, kept: str
) -> None:
    start = tmp_path / "start"
    shutil.copytree(pretrained, start)
    options = ["model={}", f"start={start}"]
    made = recipe(corpus, "text-to-semantic", *options).trainer(tmp_path / "run")
    if kept == "a checkpoint":
        made.train()
        shutil.rmtree(start)
        more = recipe(corpus, "text-to-semantic", *options, "plan.num_train_steps=3")
        assert more.trainer(tmp_path / "run", resume=True).train().step == 3
    else:  # then it begins with the weights of its start
        again = recipe(corpus, "text-to-semantic", *options).trainer(tmp_path / "run", resume=True)
        for key, tensor in made.model.state_dict().items():
            assert torch.equal(again.model.state_dict()[key], tensor), key
