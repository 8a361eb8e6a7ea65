"""Whatever a user gets wrong: status 2 or a counted rejection, one sentence, no traceback, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
import yaml
from shell import RATES, PlainUser, contents, done, madrigal, on_full_disk, refused, train
from spoiled import NOT_COMPRESSED, RATE, SPOILED, cut, spoil, voice

CODEC = ("--codec", "runs/codec", "--kbps", RATES[1])
NEWEST, BEFORE = Path("runs/codec/checkpoints/step-00000004"), Path("runs/codec/checkpoints/step-00000002")


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Change one bit of a file; a negative position counts from its end."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


# The command line itself.


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("prepar recordings", "prepar"),
        ("prepare", "'folder'"),
        ("prepare recordings --worker 2", "--worker"),
        ("prepare recordings --workers 0", "--workers"),
        ("prepare recordings --workers two", "--workers"),
        ("prepare recordings --min-seconds -1", "--min-seconds"),
        ("compress recordings/0.wav", "'target'"),
        ("compress recordings/0.wav a.mgl --kbps much", "--kbps"),
        ("decompress speech.mgl a.wav b.wav", "b.wav"),
        ("evaluate runs/codec --limit 0", "--limit"),
        ("train soundstream/tiny --run", "--run"),
    ],
)
def test_words_that_the_command_does_not_know(here: Path, words: str, about: str) -> None:
    assert about in refused(*words.split())


def test_a_real_process_tells_one_sentence_and_leaves_with_2(here: Path) -> None:
    command = [sys.executable, "-m", "madrigal.cli", "prepare", "nowhere"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 2
    assert process.stdout == ""
    assert process.stderr == "madrigal: There is no folder nowhere; give the folder that holds the recordings.\n"


def test_a_mistake_of_ours_is_no_mistake_of_the_user(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("madrigal.data.prepare.prepare", broken)
    with pytest.raises(ZeroDivisionError):
        madrigal("prepare", "recordings")


# prepare


def test_prepare_a_folder_that_is_not_there(here: Path) -> None:
    assert "There is no folder nowhere" in refused("prepare", "nowhere")


def test_prepare_a_file(here: Path) -> None:
    assert "is a file" in refused("prepare", "recordings/0.wav")


def test_prepare_an_empty_folder(here: Path) -> None:
    Path("empty").mkdir()
    assert "holds no audio" in refused("prepare", "empty")


@pytest.mark.parametrize("name", SPOILED)
def test_prepare_counts_a_file_that_cannot_be_used(here: Path, name: str) -> None:
    spoil(Path("recordings"), name)
    before = contents("recordings")
    said = done("prepare", "recordings", "-o", "prepared", "--json")
    assert said.json["files"] == 6
    assert said.json["rejected"] == {SPOILED[name][0]: 1}
    (line,) = Path("prepared/rejected.jsonl").read_text().splitlines()
    assert json.loads(line)["path"].endswith(name)
    assert contents("recordings") == before


@pytest.mark.parametrize("name", SPOILED)
def test_prepare_a_folder_with_nothing_else(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    sentence = refused("prepare", "bad", "-o", "prepared", leaves=("prepared",))
    assert f"1 {SPOILED[name][0]}" in sentence
    assert not Path("prepared/manifest.jsonl").exists()


def test_prepare_says_how_many_of_each(here: Path) -> None:
    spoil(Path("recordings"))
    said = done("prepare", "recordings", "-o", "prepared")
    assert f"{len(SPOILED)} rejected (" in said.out
    assert "3 truncated" in said.out


def test_prepare_finds_damage_in_the_middle_when_it_is_asked_to(here: Path) -> None:
    path = Path("recordings/damaged.flac")
    soundfile.write(path, voice(6), RATE)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = bytes(200)
    path.write_bytes(data)
    assert sum(done("prepare", "recordings", "-o", "full", "--full", "--json").json["rejected"].values()) == 1


def test_prepare_a_file_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("recordings/1.wav").chmod(0)
    said = plain_user("prepare", "recordings", "-o", "prepared", "--json")
    assert said.status == 0
    assert said.json["rejected"] == {"unreadable": 1}


def test_prepare_a_folder_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0)
    assert "locked" in refused("prepare", "locked", run=plain_user)


def test_prepare_never_writes_into_the_recordings(here: Path) -> None:
    assert "lies in" in refused("prepare", "recordings", "-o", "recordings/prepared")


def test_prepare_into_a_file(here: Path) -> None:
    assert "speech.mgl is a file" in refused("prepare", "recordings", "-o", "speech.mgl")
    assert "could not be written" in refused("prepare", "recordings", "-o", "speech.mgl/prepared")


def test_prepare_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "locked" in refused("prepare", "recordings", "-o", "locked", run=plain_user)
    assert "locked" in refused("prepare", "recordings", "-o", "locked/prepared", run=plain_user)


def test_prepare_on_a_full_disk_keeps_the_manifest_that_was_there(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    soundfile.write("recordings/more.wav", voice(pitch=333), RATE)
    spoil(Path("recordings"), "text.wav")
    assert "could not be written" in refused("prepare", "recordings", "-o", "prepared", run=on_full_disk())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.jsonl", '{"file_name": "0.wav", "text": "One"}\n{"file_name": \n'),
        ("manifest.json", '{"audio_filepath": "0.wav", "duration": 1, "text": "One"}\nnothing\n'),
    ],
)
def test_prepare_a_damaged_list_of_files(here: Path, name: str, text: str) -> None:
    (here / "recordings" / name).write_text(text)
    sentence = refused("prepare", "recordings", "-o", "prepared")
    assert f"{name}, line 2" in sentence


# train: what is asked for


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("train soundstream/tiny", "--run"),
        ("train --run runs/new", "Name a recipe"),
        ("train soundstream/tyny --run runs/new", "did you mean soundstream/tiny?"),
        ("train nonsense --run runs/new", "soundstream/tiny"),
        ("train nowhere.yaml --run runs/new", "nowhere.yaml"),
        ("train soundstream/tiny plan.lr --run runs/new", "plan.lr"),
        ("train soundstream/tiny =3 --run runs/new", "=3"),
        ("train soundstream/tiny data=recordings --resume --overwrite --run runs/codec", "--resume"),
        ("train --resume --run runs/new", "There is no run in runs/new"),
    ],
)
def test_train_without_knowing_what(here: Path, words: str, about: str) -> None:
    assert about in refused(*words.split())


@pytest.mark.parametrize(
    ("override", "about"),
    [
        ("plna.lr=1", "did you mean plan?"),
        ("plan.learning_rate=1", "no key 'plan.learning_rate'"),
        ("plan.batchsize=1", "did you mean plan.batch_size?"),
        ("plan.discr_warmup=1", "did you mean plan.discr_warmup_steps?"),
        ("model.spectral_dims=16", "did you mean model.spectral_dim?"),
        ("data.max_length_second=1", "did you mean data.max_length_seconds?"),
        ("model.loss_weights.mell=1", "did you mean 'mel'?"),
        ("plan.lr=fast", "plan.lr is 'fast'"),
        ("plan.lr=", "plan.lr is None"),
        ("plan.lr=0", "plan.lr is 0"),
        ("plan.lr=-1e-4", "plan.lr is -0.0001"),
        ("plan.lr=.nan", "plan.lr is nan"),
        ("plan.lr=.inf", "plan.lr is inf"),
        ("plan.batch_size=0", "plan.batch_size is 0"),
        ("plan.batch_size=2.5", "plan.batch_size is 2.5"),
        ("plan.batch_size=[2]", "plan.batch_size is [2]"),
        ("plan.num_train_steps=-3", "plan.num_train_steps is -3"),
        ("plan.num_train_steps=", "num_train_steps or num_train_epochs"),
        ("plan.num_train_epochs=2", "num_train_steps or num_train_epochs"),
        ("plan.valid_frac=1", "plan.valid_frac is 1"),
        ("plan.scheduler=sinus", "plan.scheduler is 'sinus'"),
        ("plan.optimizer=sgd", "plan.optimizer is 'sgd'"),
        ("plan.mixed_precision=fp8", "plan.mixed_precision is 'fp8'"),
        ("plan.log_with=[nobody]", "nobody"),
        ("plan.lr.peak=1", "lr is a value"),
        ("plan=3", "plan is 3"),
        ("model=3", "model is 3"),
        ("model=small", "model"),
        ("model.strides=[2, 4]", "strides has 2 entries"),
        ("model.strides=[2, 0, 5, 8]", "model.strides"),
        ("model.input_channels=8", "model.input_channels is 8"),
        ("model.target_sample_hz=0", "model.target_sample_hz is 0"),
        ("model.pad_mode=reflect", "hear the future"),
        ("model.rq_kwargs.decay_rate=1", "decay_rate"),
        ("data.max_length_seconds=0", "data.max_length_seconds is 0"),
        ("data.max_length_seconds=1e-9", "max_length"),
        ("data.gain_db=[3, -3]", "gain_db is (3.0, -3.0)"),
        ("data.gain_db=[3]", "data.gain_db"),
        ("data.path=", "data.path is None"),
        ("data.path=nowhere", "There is no folder nowhere"),
        ("data.valid_path=nowhere", "There is no folder nowhere"),
        ("system=orchestra", "no system 'orchestra'"),
        ("system=[1]", "no system [1]"),
    ],
)
def test_train_with_a_wrong_value(here: Path, override: str, about: str) -> None:
    sentence = refused(*train(override), leaves=("runs/new",))
    assert about in sentence
    assert "pydantic" not in sentence
    assert not list(here.glob("runs/new/checkpoints/*"))


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("system: [soundstream", "is not valid YAML"),
        ("- soundstream\n- tiny\n", "the key 'system'"),
        ("", "the key 'system'"),
        ("data: recordings\nplan: {num_train_steps: 1}\n", "the key 'system'"),
        ("system: soundstream\nplan: {num_train_steps: 1}\n", "has no data"),
        ("system: soundstream\ndata: recordings\n", "has no plan"),
        ("system: soundstream\ndata: recordings\nplan: 3\n", "plan is 3"),
        ("system: soundstream\n1: 2\ndata: recordings\nplan: {num_train_steps: 1}\n", "keywords must be strings"),
        (b"\xff\xfe\x00\x01", "is not valid YAML"),
        (None, "recipe.yaml"),
    ],
)
def test_train_with_a_recipe_that_makes_no_sense(here: Path, text: str | bytes | None, about: str) -> None:
    if text is None:
        Path("recipe.yaml").mkdir()
    else:
        Path("recipe.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    assert about in refused("train", "recipe.yaml", "--run", "runs/new")


# train: the data


@pytest.mark.parametrize("data", ["nowhere", "empty", "speech.mgl", "recordings/0.wav", "bad"])
def test_train_on_what_is_no_folder_of_recordings(here: Path, data: str) -> None:
    Path("empty").mkdir()
    spoil(Path("bad"))
    assert data in refused(*train(data=data), leaves=("runs/new",))


def test_train_goes_on_without_the_files_that_cannot_be_used(here: Path) -> None:
    spoil(Path("recordings"))
    before = contents("recordings")
    said = done(*train())
    assert f"{len(SPOILED)} rejected (" in said.err
    assert len(Path("runs/new/data/train/rejected.jsonl").read_text().splitlines()) == len(SPOILED)
    assert contents("recordings") == before


def test_train_with_a_batch_larger_than_the_set(here: Path) -> None:
    sentence = refused(*train("plan.batch_size=16"), leaves=("runs/new",))
    assert "5 items, fewer than batch_size 16" in sentence


def test_train_on_too_few_files_to_hold_one_out(here: Path) -> None:
    Path("few").mkdir()
    shutil.copy("recordings/0.wav", "few")
    done(*train("plan.batch_size=1", data="few"))
    shutil.copy("recordings/1.wav", "few")
    assert "1 items, fewer than batch_size 2" in refused(*train(data="few", run="runs/few"), leaves=("runs/few",))
    assert "--data FOLDER" in refused("evaluate", "runs/new", "--no-opus", leaves=("runs/new",))


@pytest.mark.parametrize(
    "line",
    ["nothing", "[1]", '{"path": "0.wav"}', '{"path": "0.wav", "duration": -1, "sample_rate": 1, "channels": 1}'],
)
def test_train_on_a_damaged_manifest(here: Path, line: str) -> None:
    done("prepare", "recordings", "-o", "prepared")
    manifest = Path("prepared/manifest.jsonl")
    manifest.write_text(manifest.read_text() + line + "\n")
    assert "manifest.jsonl, line 7" in refused(*train(data="prepared"), leaves=("runs/new",))


def test_train_on_recordings_that_went_away(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    shutil.move("recordings", "elsewhere")
    assert "could not be decoded" in refused(*train(data="prepared"), leaves=("runs/new",))


def test_train_goes_on_when_one_recording_went_bad(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    for name in ("0.wav", "1.wav"):
        Path("recordings", name).write_text("no longer a recording")
    done(*train(data="prepared"))
    rejected = Path("runs/new/data/train/rejected.jsonl").read_text()
    assert "0.wav" in rejected or "1.wav" in rejected


def test_train_takes_the_data_that_it_is_given_now(here: Path) -> None:
    done(*train())
    spoil(Path("others"), "text.wav")
    for number in range(4):
        soundfile.write(f"others/other{number}.wav", voice(pitch=300 + number), RATE)
    done(*train(data="others", options="--overwrite"))
    assert "other3.wav" in Path("runs/new/data/train/manifest.jsonl").read_text()
    soundfile.write("others/added.wav", voice(pitch=400), RATE)
    done(*train(data="others", options="--overwrite"))
    assert "added.wav" in Path("runs/new/data/train/manifest.jsonl").read_text()
    soundfile.write("others/later.wav", voice(pitch=500), RATE)
    done(*train("plan.num_train_steps=5", data="others", options="--resume"))
    assert "later.wav" not in Path("runs/new/data/train/manifest.jsonl").read_text()


# train: the run folder


def test_train_never_clears_a_run_that_is_there(here: Path) -> None:
    sentence = refused(*train(run="runs/codec"))
    assert "already holds a run at step-00000004" in sentence
    assert "--resume" in sentence
    assert "--overwrite" in sentence


def test_train_into_a_file(here: Path) -> None:
    assert "speech.mgl is a file" in refused(*train(run="speech.mgl"))
    assert "cannot be written" in refused(*train(run="speech.mgl/run"))


def test_train_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    for run in ("locked", "locked/run"):
        assert "cannot be written" in refused(*train(run=run), run=plain_user)
    os.chmod("runs/codec", 0o500)
    assert "cannot be written" in refused(*train(run="runs/codec", options="--overwrite"), run=plain_user)


@pytest.mark.parametrize(
    "mistake", ["data=nowhere", "data=bad", "plan.batch_size=16", "plan.lr=-1", "plan.log_with=[nobody]"]
)
def test_overwrite_clears_nothing_when_the_new_run_cannot_start(here: Path, mistake: str) -> None:
    done(*train())
    spoil(Path("bad"))
    Path("runs/new/data/train/rejected.jsonl").unlink()  # the one file that may be written again
    refused(*train(mistake, options="--overwrite"), leaves=("runs/new/data/train/rejected.jsonl",))
    done(*train("plan.num_train_steps=5", options="--resume"))


@pytest.mark.parametrize(
    ("size", "fails"),
    [
        (0, "data/train/rejected.jsonl"),
        (300, "data/train/manifest.jsonl"),
        (1200, "recipe.yaml"),
        (4000, "samples/step-00000001"),
        (8000, "checkpoints/step-00000001"),
    ],
)
def test_train_on_a_full_disk(here: Path, size: int, fails: str) -> None:
    spoil(Path("recordings"), "text.wav")
    words = ("plan.save_results_every=1",)
    sentence = refused(*train(*words), run=on_full_disk(size), leaves=("runs/new",))
    assert f"runs/new/{fails} could not be written" in sentence
    assert not list(Path("runs/new/checkpoints").iterdir())
    assert not list(here.rglob(".*"))
    done(*train(*words, options="--overwrite"))


def test_train_until_the_figures_fill_the_disk(here: Path) -> None:
    words = ("plan.save_model_every=99", "plan.save_results_every=99", "plan.num_train_steps=99")
    assert "runs/new/metrics.jsonl could not be written" in refused(
        *train(*words), run=on_full_disk(4000), leaves=("runs/new",)
    )
    assert done("runs", "--json").json[1]["step"] > 1


def test_resume_on_a_full_disk_keeps_what_is_there(here: Path) -> None:
    before = contents(NEWEST)
    said = on_full_disk(20_000)(*train("plan.num_train_steps=6", run="runs/codec", options="--resume"))
    assert said.status == 2
    assert "could not be written" in said.err
    assert contents(NEWEST) == before
    done(*train("plan.num_train_steps=6", run="runs/codec", options="--resume"))


@pytest.mark.parametrize(("lr", "reason"), [("1e6", "loss was not finite 6 times in a row"), ("1e39", "not finite")])
def test_a_training_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    here: Path, lr: str, reason: str
) -> None:
    """Though it skips past two steps at which a checkpoint is due, and only one is to be kept."""
    before = contents(NEWEST)
    patience = ("plan.num_train_steps=99", "plan.max_skipped_steps=6", "plan.keep_checkpoints=1")
    said = madrigal(*train(f"plan.lr={lr}", *patience, run="runs/codec", options="--resume"))
    assert said.status == 2, said.err
    sentence = said.err.splitlines()[-1]
    assert sentence.startswith("madrigal: Training stopped at step ")
    assert reason in sentence
    assert f"the last good checkpoint is {NEWEST}. Lower plan.lr" in sentence
    assert "Traceback" not in said.err
    assert contents(NEWEST) == before


def test_train_for_the_best_of_a_figure_that_is_not_measured(here: Path) -> None:
    sentence = refused(*train("plan.best_metric=valid/beauty"), leaves=("runs/new",))
    assert "'valid/beauty'" in sentence
    assert "valid/mel" in sentence


# resume


@pytest.mark.parametrize(
    "part", ["model.safetensors", "optimizer.safetensors", "ema.safetensors", "config.json", "state.json"]
)
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_resume_passes_over_a_damaged_checkpoint(here: Path, part: str, how: str) -> None:
    path = NEWEST / part
    if how == "flipped":
        flip(path, len(path.read_bytes()) // 2)
    elif how == "cut":
        cut(path)
    else:
        path.unlink()
    damaged, whole = contents(NEWEST), contents(BEFORE)
    said = done("train", "--resume", "--run", "runs/codec")
    assert f"{NEWEST} is damaged" in said.err
    assert "at step 2" in said.err
    assert contents(BEFORE) == whole
    assert contents(NEWEST.with_name(f"damaged-{NEWEST.name}")) == damaged
    assert contents(NEWEST) != damaged


def test_resume_where_no_checkpoint_is_whole(here: Path) -> None:
    flip(NEWEST / "model.safetensors", -1)
    cut(BEFORE / "state.json")
    sentence = refused("train", "--resume", "--run", "runs/codec")
    assert "No checkpoint in runs/codec/checkpoints is whole" in sentence
    for words in (
        ["export", "runs/codec", "out"],
        ["evaluate", "runs/codec"],
        ["compress", "speech.mgl", "x.mgl", *CODEC],
    ):
        assert "whole" in refused(*words)


@pytest.mark.parametrize("override", ["model.spectral_dim=24", "model.rq_num_quantizers=2", "model.spectral_depth=2"])
def test_resume_with_a_changed_model(here: Path, override: str) -> None:
    sentence = refused(*train(override, run="runs/codec", options="--resume"))
    assert "does not fit this model" in sentence


def test_resume_with_another_optimizer(here: Path) -> None:
    sentence = refused(*train("plan.optimizer=lion", run="runs/codec", options="--resume"))
    assert "plan.optimizer" in sentence


@pytest.mark.parametrize("text", ["", "system: [", "system: soundstream\n"])
def test_resume_a_run_whose_recipe_is_damaged(here: Path, text: str) -> None:
    Path("runs/codec/recipe.yaml").write_text(text)
    assert "recipe" in refused("train", "--resume", "--run", "runs/codec")


def test_resume_a_run_whose_figures_were_cut_short(here: Path) -> None:
    with open("runs/codec/metrics.jsonl", "a") as file:
        file.write('{"step": 4, "loss": nan}\n[]\n3\n{"step": "x"}\n{"step": 5, "lo')
    assert done("runs", "--json").json
    done(*train("plan.num_train_steps=5", run="runs/codec", options="--resume"))
    steps = [json.loads(line)["step"] for line in Path("runs/codec/metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 5


# compress


@pytest.mark.parametrize("name", NOT_COMPRESSED)
def test_compress_what_is_no_sound(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    assert name in refused("compress", f"bad/{name}", "bad.mgl", *CODEC)


@pytest.mark.parametrize("name", ["silent.wav", "short.wav"])
def test_compress_silence_and_what_is_short(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    done("compress", f"bad/{name}", "bad.mgl", *CODEC)
    done("decompress", "bad.mgl", "bad.wav", *CODEC[:2])
    assert soundfile.info("bad.wav").frames == soundfile.info(f"bad/{name}").frames


@pytest.mark.parametrize("source", ["nowhere.wav", "recordings", "speech.mgl"])
def test_compress_what_is_no_file_of_sound(here: Path, source: str) -> None:
    assert source in refused("compress", source, "new.mgl", *CODEC)


def test_compress_a_file_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("recordings/0.wav").chmod(0)
    assert "recordings/0.wav" in refused("compress", "recordings/0.wav", "new.mgl", *CODEC, run=plain_user)


@pytest.mark.parametrize("kbps", ["0", "-3", "nan", "inf", "5", "1e9", "0.3"])
def test_compress_at_a_rate_that_the_codec_does_not_have(here: Path, kbps: str) -> None:
    sentence = refused("compress", "recordings/0.wav", "new.mgl", "--codec", "runs/codec", f"--kbps={kbps}")
    assert "the possible rates are 0.2, 0.4, 0.6 kbps" in sentence


@pytest.mark.parametrize("codec", ["nowhere", "./runs/nowhere", "recordings", "speech.mgl", "runs", ""])
def test_a_codec_that_is_not_there(here: Path, codec: str) -> None:
    sentences = {
        refused("compress", "recordings/0.wav", "new.mgl", "--codec", codec),
        refused("decompress", "speech.mgl", "new.wav", "--codec", codec),
        refused("export", codec, "new"),
        refused("evaluate", codec, "--data", "recordings"),
    }
    assert len(sentences) == 1


@pytest.mark.parametrize("part", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["cut", "garbage", "gone"])
def test_a_codec_that_is_damaged(here: Path, part: str, how: str) -> None:
    path = Path("exported", part)
    if how == "cut":
        cut(path)
    elif how == "garbage":
        path.write_bytes(b"\x00\xff" * 200)
    else:
        path.unlink()
    assert "exported" in refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")


def test_a_codec_with_options_of_another_version(here: Path) -> None:
    path = Path("exported/config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "wormhole": True, "spectral_dim": -1}))
    sentence = refused("compress", "recordings/0.wav", "new.mgl", "--codec", "exported")
    assert "config.json" in sentence
    path.write_text("[]")
    assert "config.json" in refused("compress", "recordings/0.wav", "new.mgl", "--codec", "exported")


@pytest.mark.parametrize(
    ("verb", "source", "suffix"), [("compress", "recordings/0.wav", "mgl"), ("decompress", "speech.mgl", "wav")]
)
def test_a_result_that_cannot_be_written(
    here: Path, plain_user: PlainUser, verb: str, source: str, suffix: str
) -> None:
    codec = CODEC if verb == "compress" else CODEC[:2]
    Path(f"taken.{suffix}").write_text("precious")
    Path(f"folder.{suffix}").mkdir()
    Path("locked").mkdir(mode=0o500)
    assert "exists already" in refused(verb, source, f"taken.{suffix}", *codec)
    assert "is a folder" in refused(verb, source, f"folder.{suffix}", *codec)
    assert "there is no folder nowhere" in refused(verb, source, f"nowhere/new.{suffix}", *codec)
    assert "locked" in refused(verb, source, f"locked/new.{suffix}", *codec, run=plain_user)
    assert "could not be written" in refused(verb, source, f"new.{suffix}", *codec, run=on_full_disk(60))
    assert "could not be written" in refused(
        verb, source, f"taken.{suffix}", *codec, "--overwrite", run=on_full_disk(60)
    )


def test_a_result_in_the_place_of_its_source(here: Path) -> None:
    os.link("recordings/0.wav", "same.mgl")
    Path("link.wav").symlink_to("speech.mgl")
    assert "is the file to be read" in refused(
        "compress", "recordings/0.wav", "recordings/0.wav", *CODEC, "--overwrite"
    )
    assert "is the file to be read" in refused("compress", "recordings/0.wav", "same.mgl", *CODEC, "--overwrite")
    assert "is the file to be read" in refused("decompress", "speech.mgl", "link.wav", *CODEC[:2], "--overwrite")


# decompress


def test_decompress_a_file_with_one_bit_flipped(here: Path) -> None:
    """Any byte of the file: magic, header, codes, checksums or end."""
    whole = Path("speech.mgl").read_bytes()
    for position in range(len(whole)):
        Path("speech.mgl").write_bytes(whole)
        flip(Path("speech.mgl"), position, position % 8)
        said = madrigal("decompress", "speech.mgl", "new.wav", "--codec", "exported")
        assert said.status == 2
        assert said.err.startswith("madrigal: The file speech.mgl is ")
        assert said.err.count("\n") == 1
    Path("speech.mgl").write_bytes(whole)
    assert not Path("new.wav").exists()
    done("decompress", "speech.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 0.4, 0.7, 0.95, 0.999])
def test_decompress_a_truncated_file(here: Path, part: float) -> None:
    cut(Path("speech.mgl"), part)
    sentence = refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")
    assert "speech.mgl is " in sentence


def test_decompress_a_file_that_goes_on_after_its_end(here: Path) -> None:
    Path("speech.mgl").write_bytes(Path("speech.mgl").read_bytes() + b"\0")
    assert "damaged after its end" in refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("source", ["nowhere.mgl", "recordings", "recordings/0.wav", "garbage.mgl"])
def test_decompress_what_was_never_compressed(here: Path, source: str) -> None:
    Path("garbage.mgl").write_bytes(bytes(range(256)) * 20)
    assert source in refused("decompress", source, "new.wav", "--codec", "exported")


def test_decompress_with_another_codec(here: Path) -> None:
    assert "compressed with another codec" in refused("decompress", "other.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("target", ["new.mp3", "new", "new.wav.mgl"])
def test_decompress_to_a_format_that_cannot_be_written(here: Path, target: str) -> None:
    assert ".wav or .flac" in refused("decompress", "speech.mgl", target, "--codec", "exported")


# export


def test_export_never_replaces_what_is_there(here: Path) -> None:
    assert "exported" in refused("export", "runs/codec", "exported")
    assert "is a file" in refused("export", "runs/codec", "speech.mgl")
    assert "speech.mgl" in refused("export", "runs/codec", "speech.mgl/new")
    done("export", "runs/other", "exported", "--overwrite")


def test_export_where_nothing_can_be_written(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    assert "locked" in refused("export", "runs/codec", "locked/new", run=plain_user)
    assert "locked" in refused("export", "runs/codec", "locked", run=plain_user)
    for size in (0, 3000):
        refused("export", "runs/codec", "new", run=on_full_disk(size), leaves=("new",))
        assert contents("new") == {}
        refused("export", "runs/other", "exported", "--overwrite", run=on_full_disk(size))


def test_export_a_run_without_a_checkpoint(here: Path) -> None:
    shutil.rmtree("runs/codec/checkpoints")
    Path("runs/codec/checkpoints").mkdir()
    for words in (["export", "runs/codec", "new"], ["evaluate", "runs/codec"]):
        assert "holds no checkpoint" in refused(*words)


# evaluate


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("--kbps three", "--kbps is 'three'"),
        ("--kbps 3,,6", "--kbps is '3,,6'"),
        ("--kbps=", "--kbps is ''"),
        ("--kbps 0.2,77", "cannot code at 77 kbps"),
        ("--kbps nan", "cannot code at nan kbps"),
        ("--kbps 0", "cannot code at 0 kbps"),
        ("--kbps 0.2 --data nowhere", "nowhere"),
        ("--kbps 0.2 --data bad", "14 files in"),
        ("--kbps 0.2 --data speech.mgl", "speech.mgl"),
        ("--kbps 0.2 --out speech.mgl", "speech.mgl cannot be written"),
        ("--kbps 0.2 --recogniser nowhere", "no model.bin"),
    ],
)
def test_evaluate_what_cannot_be(here: Path, words: str, about: str) -> None:
    spoil(Path("bad"))
    assert about in refused("evaluate", "runs/codec", "--no-opus", *words.split(), leaves=("runs/codec/evaluation",))


def test_evaluate_with_a_recogniser_that_is_not_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADRIGAL_RECOGNISER", "nowhere")
    words = ("evaluate", "runs/codec", "--no-opus", "--kbps", RATES[0])
    assert "MADRIGAL_RECOGNISER names nowhere" in refused(*words, leaves=("runs/codec/evaluation",))


def test_evaluate_a_codec_without_data_of_its_own(here: Path) -> None:
    assert "--data FOLDER" in refused("evaluate", "exported", "--no-opus", "--kbps", "0.2")


def test_evaluate_into_a_read_only_folder(here: Path, plain_user: PlainUser) -> None:
    Path("locked").mkdir(mode=0o500)
    words = ("evaluate", "runs/codec", "--no-opus", "--kbps", "0.2", "--out")
    for out in ("locked", "locked/new"):
        assert "locked" in refused(*words, out, run=plain_user)


# runs


def test_runs_where_there_are_none(here: Path) -> None:
    assert "There is no folder nowhere" in refused("runs", "nowhere")
    assert "speech.mgl" in refused("runs", "speech.mgl")
    assert done("runs", "recordings", "--json").json == []


@pytest.mark.parametrize("text", ["", "system: [", "- 1", "plan: {}", "system: soundstream\nplan: 3\n"])
def test_runs_lists_the_others_when_one_is_damaged(here: Path, text: str) -> None:
    Path("runs/codec/recipe.yaml").write_text(text)
    rows = done("runs", "--json").json
    assert [row["run"] for row in rows] == ["runs/codec", "runs/other"]
    done("runs")


def test_the_resolved_recipe_is_a_recipe(here: Path) -> None:
    done("train", "runs/codec/recipe.yaml", "--run", "runs/again")
    again, first = (yaml.safe_load(Path(f"runs/{name}/recipe.yaml").read_text()) for name in ("again", "codec"))
    assert again == first
