"""All of text to speech by one recipe: what it makes, what may be left out, and where parts may come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_speech import voice

from madrigal.data.manifest import Manifest
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.speartts.loading import load_text_to_speech
from madrigal.speartts.whole_recipe import SpearTTSRecipe
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig

PARTS = ["tokenizer", "pretrain", "read", "speak", "coarse", "fine"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """few/ (four recordings with texts) and many/ (six without)."""
    folder = tmp_path_factory.mktemp("corpus")
    for name, count in (("few", 4), ("many", 6)):
        (folder / name).mkdir()
        for number in range(count):
            voice(folder / name / f"{number}.wav", seconds=1.2, pitch=110.0 + 20 * number)
            if name == "few":
                (folder / name / f"{number}.txt").write_text(f"Hum number {number}.")
    return folder


def recipe(corpus: Path, *changes: str) -> Any:
    words = [f"data={corpus / 'few'}", f"speech={corpus / 'many'}", *changes]
    return build_config(SpearTTSRecipe, read_recipe("speartts/tiny", words), "speartts/tiny")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    run = tmp_path_factory.mktemp("runs") / "speartts"
    recipe(corpus).trainer(run).train()
    return run


def start_of(run: Path, part: str) -> Any:
    return yaml.safe_load((run / part / "recipe.yaml").read_text()).get("start")


def test_that_there_are_no_texts_is_told_before_anything_is_trained(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"None of the recordings of .*many has a text: write NAME\.txt beside"):
        recipe(corpus, f"data={corpus / 'many'}").trainer(tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_a_run_of_all_parts_speaks(run: Path, tmp_path: Path) -> None:
    assert all(list((run / part / "checkpoints").iterdir()) for part in PARTS)
    assert start_of(run, "read") == start_of(run, "speak") == str(run / "pretrain")
    labelled = Manifest.load(run / "labels")
    assert 0 < len(labelled) <= 6
    assert all(entry.text for entry in labelled)
    said = yaml.safe_load((run / "speak/recipe.yaml").read_text())
    assert said["data"]["generated"] == str(run / "labels")
    model = load_text_to_speech([run])
    speech = model.say("Hum.", voice=voice(tmp_path / "voice.wav"))
    assert speech.sample_rate == 16000
    assert speech.wave.isfinite().all()


def test_what_is_finished_is_passed_over(run: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file: file.stat().st_mtime_ns for file in run.glob("*/checkpoints/*/*")}
    monkeypatch.setattr("madrigal.speartts.pseudo_label.Reader.read", None)
    recipe(corpus).trainer(run, resume=True).train()
    assert {file: file.stat().st_mtime_ns for file in run.glob("*/checkpoints/*/*")} == before


def test_parts_of_another_run_serve(run: Path, corpus: Path, tmp_path: Path) -> None:
    """As the rows of a table are made: one trains all, the others take what they have in common."""
    taken = [f"{part}={run / part}" for part in ("tokenizer", "coarse", "fine")]
    bare = recipe(corpus, *taken, "pretrain=null", "read=null", f"tokens={run / 'tokens'}")
    assert bare.parts == ["speak"]
    bare.trainer(tmp_path / "bare").train()
    assert start_of(tmp_path / "bare", "speak") is None
    assert sorted(path.name for path in (tmp_path / "bare").iterdir()) == ["data", "recipe.yaml", "speak"]
    model = load_text_to_speech([tmp_path / "bare"])
    assert model.coarse_transformer.config == load_text_to_speech([run]).coarse_transformer.config


def test_overwriting_removes_the_labels_too(run: Path, corpus: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    (mine / "labels").mkdir(parents=True)
    (mine / "labels/settings.json").write_text("{}")
    (mine / "speak/checkpoints").mkdir(parents=True)
    (mine / "read").mkdir()
    recipe(corpus).trainer(mine, overwrite=True)
    assert sorted(path.name for path in mine.iterdir()) == ["data", "read", "recipe.yaml"]


def test_mistakes_are_told_before_training(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="read labels untranscribed recordings, and there are none"):
        recipe(corpus, "speech=null")
    with pytest.raises(UserError, match=r"pretrain has model\.unique_consecutive=True, and coarse has False"):
        recipe(corpus, "pretrain.model.unique_consecutive=true").trainer(tmp_path / "run")
    for part in ("read", "speak"):
        with pytest.raises(UserError, match=rf"{part} has model\.unique_consecutive=True, and coarse has False"):
            recipe(corpus, f"{part}.model.unique_consecutive=true").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="The stages draw 70 levels, and the codec speech-16k has"):
        recipe(corpus, "fine.model.num_fine_quantizers=68").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="where the run keeps its own files"):
        recipe(corpus, f"speech={tmp_path / 'run/labels/many'}").trainer(tmp_path / "run")
    with pytest.raises(UserError, match="The recipe's speak"):
        recipe(corpus, "speak.plan.steps=3")
    assert not (tmp_path / "run").exists()


def test_a_finished_part_of_other_tokens_is_told_before_training(run: Path, corpus: Path, tmp_path: Path) -> None:
    anew = ("coarse.model.unique_consecutive=true", "coarse.model.frames_per_semantic=null")
    with pytest.raises(UserError, match=r"pretrain has model\.unique_consecutive=False, and coarse has True"):
        recipe(corpus, *anew, f"pretrain={run / 'pretrain'}").trainer(tmp_path / "run")
    silent = "speak={recipe: text-to-semantic/tiny}"  # takes over what pretraining has, or else the default
    recipe(corpus, f"tokenizer={run / 'tokenizer'}", f"pretrain={run / 'pretrain'}", silent).check(tmp_path / "run")
    with pytest.raises(UserError, match=r"speak has model\.unique_consecutive=True, and coarse has False"):
        recipe(corpus, "pretrain=null", silent).trainer(tmp_path / "run")


@pytest.mark.parametrize("part", ["pretrain", "read", "speak", "coarse"])
def test_a_finished_part_of_another_tokenizer_is_told_before_training(
    run: Path, corpus: Path, tmp_path: Path, part: str
) -> None:
    """One that lies there, or one that is still to be trained and cannot become the same."""
    with pytest.raises(UserError, match=f"{part}=.* has learned the tokens of a tokenizer, and this run is to train"):
        recipe(corpus, f"{part}={run / part}").check(tmp_path / "run")
    other = MelKmeans(MelKmeansConfig(codebook_size=16))
    other.centroids.normal_()
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match=f"The {part} stage .* was trained with the tokenizer"):
        recipe(corpus, f"{part}={run / part}", f"tokenizer={tmp_path / 'other'}").trainer(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    # A run that goes on has its tokenizer already.
    recipe(corpus, f"{part}={run / part}").check(run)


def test_a_finished_part_of_another_codec_is_told_before_training(run: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"The fine stage .* was trained with the codec"):
        recipe(corpus, f"fine={run / 'fine'}", "codec=mels-16k").check(tmp_path / "run")


def test_a_part_that_does_something_else_is_told_before_training(run: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"read=.*speak is a run of text-to-semantic: name one of semantic-to-text"):
        recipe(corpus, f"read={run / 'speak'}", f"tokenizer={run / 'tokenizer'}").check(tmp_path / "run")


def test_phonemes_that_nobody_could_say_are_told_before_training(corpus: Path, tmp_path: Path) -> None:
    phonemes = "model.text={kind: phonemes}"
    with pytest.raises(UserError, match="read writes phonemes, which are no text that another kind could read again"):
        recipe(corpus, f"read.{phonemes}").check(tmp_path / "run")
    recipe(corpus, f"read.{phonemes}", f"speak.{phonemes}").check(tmp_path / "run")
    recipe(corpus, f"pretrain.{phonemes}").check(tmp_path / "run")  # both take it over
    recipe(corpus, f"speak.{phonemes}").check(tmp_path / "run")  # letters are read as any text


def test_a_reader_whose_labels_were_learned_learns_no_more(run: Path, corpus: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    before = (mine / "recipe.yaml").read_text()
    with pytest.raises(UserError, match="read would be trained on, and speak has learned from it as it is"):
        recipe(corpus, "read.plan.num_train_steps=900").trainer(mine, resume=True).train()
    assert (mine / "recipe.yaml").read_text() == before


def test_a_text_that_nobody_could_say_is_told_before_training(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "few", tmp_path / "few")
    for number, file in enumerate(sorted((tmp_path / "few").glob("*.txt"))):
        file.write_text("Hum number one." if number else "Hum № one.")
    changes = [f"data={tmp_path / 'few'}", "read.model.text={kind: characters}", "speak.model.text={kind: characters}"]
    with pytest.raises(UserError, match=r"The text of .*0\.wav in .* holds '№'"):
        recipe(corpus, *changes).trainer(tmp_path / "run")


def test_a_package_that_is_missing_is_told_before_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(spec: Any) -> Any:
        raise UserError("Phonemes need the package espeakng-loader")

    monkeypatch.setattr("madrigal.speartts.whole_recipe.make_text_tokenizer", missing)
    with pytest.raises(UserError, match="Phonemes need the package"):
        recipe(corpus).trainer(tmp_path / "run")
    assert not (tmp_path / "run" / "recipe.yaml").exists()


def test_pairs_of_letters_that_pretraining_cannot_learn_are_told_before_training(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Text of kind bpe is learned from texts, and no recording of .* has one"):
        recipe(corpus, "pretrain.model.text={kind: bpe}").trainer(tmp_path / "run")


def test_other_labels_need_another_speaker(run: Path, corpus: Path, tmp_path: Path) -> None:
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    taken = [f"{part}={run / part}" for part in ("tokenizer", "pretrain", "read", "coarse", "fine")]
    taken.append(f"tokens={run / 'tokens'}")
    changed = recipe(corpus, *taken, "labels.beam_size=2")
    before = (mine / "labels/settings.json").read_bytes()
    with pytest.raises(
        UserError, match=r"The part speak has learned from .*another beam: .* move .*speak away"
    ) as said:
        changed.trainer(mine, resume=True).train()
    assert "--overwrite" not in str(said.value)
    assert (mine / "labels/settings.json").read_bytes() == before
    shutil.rmtree(mine / "speak")
    changed.trainer(mine, resume=True).train()
    assert json.loads((mine / "labels/settings.json").read_text())["beam_size"] == 2
    assert list((mine / "speak/checkpoints").iterdir())
