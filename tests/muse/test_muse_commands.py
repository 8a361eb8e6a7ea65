"""Muse from the command line: trained from a folder, pictures made, edited, judged and exported; mistakes told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commanding import Command
from maskgit_toys import write_folder
from PIL import Image

from madrigal.errors import UserError
from madrigal.muse.loading import load_muse
from madrigal.muse.muse import Muse
from madrigal.muse.recognising import is_muse
from madrigal.verbs.picture_making import class_number, size_of

SOME = [(0, "black"), (2, "light"), (4, "black")]
"""The first of the pictures, some of them, and their captions."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole Muse of some steps."""
    folder = tmp_path_factory.mktemp("muse")
    pictures = write_folder(folder / "pictures", 32, 16)
    from madrigal.verbs.systems import load_recipe

    load_recipe("muse/tiny", [f"data={pictures}", "vqgan.plan.num_train_steps=2"]).trainer(folder / "run").train()
    return folder / "run"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def pixels(path: Path) -> np.ndarray:
    return np.array(Image.open(path).convert("RGB"))


def test_a_whole_run_has_its_parts_and_shares_tokens(run: Path) -> None:
    for part, steps in (("vqgan", 2), ("base", 6), ("superres", 4)):
        assert (run / part / "checkpoints" / f"step-{steps:08d}").is_dir()
    assert len(list((run / "tokens").iterdir())) == 2  # of two sizes
    assert is_muse(run)
    assert is_muse(run / "base")


def test_pictures_are_made_by_seed(run: Path, command: Command, tmp_path: Path) -> None:
    words = ["generate", run, "--text", "white", "--n", "3", "--seed", "5", "--steps", "2", "--temperature", "4"]
    told = json.loads(command.done(*words, "-o", tmp_path / "some", "--json"))
    assert told["size"] == [32, 32]
    files = [Path(file) for file in told["files"]]
    assert len(files) == 3
    command.done(*words[:5], "1", "--seed", "6", *words[8:], "-o", tmp_path / "again")
    assert np.array_equal(pixels(files[1]), pixels(tmp_path / "again" / "000.png"))
    assert not np.array_equal(pixels(files[0]), pixels(files[1]))
    command.done(*words, "-o", tmp_path / "page.png", "--negative", "black", "--cond-scale", "2", "--size", "48x32")
    assert Image.open(tmp_path / "page.png").size == (2 * 52 + 4, 2 * 36 + 4)
    assert "is there already" in command.refused(*words, "-o", tmp_path / "page.png")


def test_the_base_alone_makes_small_pictures_and_may_have_no_text(run: Path, command: Command, tmp_path: Path) -> None:
    command.done("generate", run / "base", "--steps", "1", "-o", tmp_path)
    assert Image.open(tmp_path / "000.png").size == (16, 16)
    assert "only makes pictures larger" in command.refused("generate", run / "superres", "-o", tmp_path / "x")


def test_editing_keeps_what_is_outside_of_the_mask(run: Path, command: Command, tmp_path: Path) -> None:
    source = run.parent / "pictures" / "02.png"
    mask = np.zeros((32, 32), np.uint8)
    mask[:8, :16] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    words = ["edit", source, "--run", run, "--text", "white", "--steps", "2"]
    told = json.loads(command.done(*words, "--mask", tmp_path / "mask.png", "-o", tmp_path / "out.png", "--json"))
    before, after = pixels(source), pixels(tmp_path / "out.png")
    assert told["made"] == 0.125
    assert np.array_equal(before[mask == 0], after[mask == 0])
    assert not np.array_equal(before[mask > 0], after[mask > 0])
    command.done(*words, "--expand", "0,0,16,8", "-o", tmp_path / "wide.png")
    assert np.array_equal(pixels(tmp_path / "wide.png")[:32, :32], before)
    assert pixels(tmp_path / "wide.png").shape == (40, 48, 3)
    command.done(*words, "--vary", "0.5", "-o", tmp_path / "varied.png")
    assert not np.array_equal(pixels(tmp_path / "varied.png"), before)


def test_mistakes_are_told_in_a_sentence(run: Path, command: Command, tmp_path: Path) -> None:
    source = run.parent / "pictures" / "02.png"
    out = ["-o", tmp_path / "out.png"]
    assert "--mask mask.png" in command.refused("edit", source, "--run", run, *out)
    assert "with --run" in command.refused("edit", source, "--vary", "0.5", *out)
    assert "--size 32x32" in command.refused("edit", source, "--run", run, "--vary", "1", "--size", "30x30", *out)
    assert "LEFT,TOP" in command.refused("edit", source, "--run", run, "--expand", "4", *out)
    assert "for sound" in command.refused("edit", source, "--run", run, "--fill", "1-2", *out)
    assert "for sound" in command.refused("generate", run, "--seconds", "3", *out)
    assert "no classes" in command.refused("generate", run, "--class", "cat", *out)
    assert "write one number" in command.refused("generate", run, "--temperature", "1,2,3", *out)
    assert "WIDTHxHEIGHT" in command.refused("generate", run, "--size", "big", *out)
    assert "end it in .png" in command.refused("generate", run, "--text", "white", "-o", tmp_path / "out.wav")
    command.done("generate", run, "--text", "white", "-o", tmp_path / "run-1.5")
    assert (tmp_path / "run-1.5" / "000.png").is_file()
    sound = tmp_path / "in.wav"
    sound.write_bytes(b"")
    assert "for pictures" in command.refused("edit", sound, "--vary", "0.5", "-o", tmp_path / "out.wav")
    assert "for pictures" in command.refused("generate", tmp_path, "--negative", "x")
    assert size_of("96x64") == (64, 96)


@pytest.mark.parametrize("option", ["--text", "--negative"])
def test_an_empty_text_is_told(option: str, run: Path, command: Command, tmp_path: Path) -> None:
    words = ["--text", "white", option, " ", "-o", tmp_path / "out.png"]
    assert f"{option} is empty" in command.refused("generate", run, *words)
    source = run.parent / "pictures" / "02.png"
    assert f"{option} is empty" in command.refused("edit", source, "--run", run, "--vary", "1", *words)
    words[3] = ""
    assert f"{option} is empty" in command.refused("generate", run, *words)


@pytest.mark.parametrize("name", ["out.psd", "out.xbm"])
def test_a_format_that_cannot_be_written_is_told_before_anything_is_painted(
    name: str, run: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Muse, "generate", lambda *_, **__: pytest.fail("it painted"))
    source = run.parent / "pictures" / "02.png"
    for words in (["generate", run], ["edit", source, "--run", run, "--vary", "1"]):
        said = command.refused(*words, "--text", "white", "-o", tmp_path / name)
        assert f"cannot be written as {name[3:]}; name a .png" in said
    assert not list(tmp_path.iterdir())


def test_exported_it_makes_the_same_shape_of_pictures(run: Path, command: Command, tmp_path: Path) -> None:
    command.done("export", run, tmp_path / "muse")
    assert is_muse(tmp_path / "muse")
    command.done("generate", tmp_path / "muse", "--text", "white", "--steps", "1", "-o", tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size == (32, 32)
    assert "holds a model already" in command.refused("export", run, tmp_path / "muse")
    command.done("export", run / "base", tmp_path / "base")
    assert json.loads((tmp_path / "base" / "config.json").read_text())["kind"] == "maskgit"


def test_pictures_are_judged_by_an_eye_that_knows_real_ones(run: Path, command: Command, tmp_path: Path) -> None:
    said = command.done(
        "evaluate", run, "--data", run.parent / "pictures", "--limit", "6", "--steps", "1", "-o", tmp_path, "--json"
    )
    report = json.loads(said)
    assert report["pictures"] == 6
    labels = {one["label"] for one in report["seen"]}
    assert labels == {"black", "dark", "light"}  # not white, which the six captions do not say
    assert report["labels"] == 3
    assert report["chance"] == pytest.approx(1 / 3)
    assert report["learned_from"] == 6  # none of those that are judged
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "pictures.png").is_file()
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert "Label found" in command.done("evaluate", run / "base", "--limit", "3", "--steps", "1", "-o", tmp_path / "b")


def test_what_is_to_be_recognised_may_be_another_field(run: Path, command: Command, tmp_path: Path) -> None:
    pictures = run.parent / "pictures"
    rows = [{"path": str(pictures / f"{n:02d}.png"), "width": 32, "height": 32, "text": t} for n, t in SOME]
    rows = [{**row, "kind": row["text"]} for row in rows]
    listed = tmp_path / "manifest.jsonl"
    listed.write_text("\n".join(map(json.dumps, rows)))
    words = ["evaluate", run, "--data", listed, "--steps", "1", "-o", tmp_path / "out"]
    report = json.loads(command.done(*words, "--label", "kind", "--json"))
    assert report["labels"] == 2  # those that are asked for; the training knows four
    assert {one["guess"] for one in report["seen"]} <= {"black", "light"}
    assert "check --label" in command.refused(*words, "--label", "kinds")
    listed.write_text(json.dumps({**rows[0], "kind": "unknown"}))
    assert "of labels that the run knows" in command.refused(*words, "--label", "kind")


def test_a_critic_is_trained_for_a_run_and_its_run_makes_pictures(run: Path, tmp_path: Path) -> None:
    from madrigal.verbs.systems import load_recipe

    changes = [f"data={run.parent / 'pictures'}", f"maskgit={run / 'base'}"]
    trainer = load_recipe("token-critic/tiny", changes).trainer(tmp_path / "critic").train()
    assert trainer.model.config.token_critic is not None
    assert trainer.model.config.token_critic.depth == 1
    muse = load_muse(tmp_path / "critic")
    assert muse.base.token_critic is not None
    assert muse.generate(["white"], timesteps=2).shape == (1, 3, 16, 16)


def test_captions_become_classes(run: Path, command: Command, tmp_path: Path) -> None:
    from madrigal.verbs.systems import load_recipe

    changes = [f"data={run.parent / 'pictures'}", f"vae={run / 'vqgan'}", "model.transformer.text_encoder=classes"]
    trainer = load_recipe("maskgit/tiny", changes).trainer(tmp_path / "run").train()
    assert trainer.model.config.class_names == ("black", "dark", "light", "white")
    assert class_number(trainer.model.config, "light") == 2
    command.done("generate", tmp_path / "run", "--class", "white", "--steps", "1", "-o", tmp_path / "some")
    assert "there are 4: black" in command.refused(
        "generate", tmp_path / "run", "--class", "grey", "-o", tmp_path / "x"
    )
    assert "without texts" in command.refused("generate", tmp_path / "run", "--text", "grey", "-o", tmp_path / "x")


def test_pictures_without_captions_are_told_before_anything_is_trained(run: Path, tmp_path: Path) -> None:
    from madrigal.verbs.systems import load_recipe

    bare = tmp_path / "bare"
    bare.mkdir()
    for file in (run.parent / "pictures").glob("*.png"):
        shutil.copy(file, bare)
    with pytest.raises(UserError, match=r"No picture in .*bare has a caption"):
        load_recipe("muse/tiny", [f"data={bare}"]).trainer(tmp_path / "a")
    part = "model.transformer.text_encoder=none"
    for one, other in (("base", "superres"), ("superres", "base")):
        with pytest.raises(UserError, match=rf"without texts by {other}\.{part}\.$"):
            load_recipe("muse/tiny", [f"data={bare}", f"{one}.{part}"]).trainer(tmp_path / one)
    load_recipe("muse/tiny", [f"data={bare}", f"base.{part}", f"superres.{part}"]).trainer(tmp_path / "b")
    with pytest.raises(UserError, match="name a folder"):
        load_recipe("muse/tiny", [f"data={next(bare.glob('*.png'))}"]).trainer(tmp_path / "c")


def test_sizes_that_do_not_fit_are_told_before_anything_is_trained(run: Path, tmp_path: Path) -> None:
    from madrigal.verbs.systems import load_recipe

    data = f"data={run.parent / 'pictures'}"
    with pytest.raises(UserError, match="give both the same"):
        load_recipe("muse/tiny", [data, "base.model.image_size=8"]).trainer(tmp_path / "a")
    with pytest.raises(UserError, match="a token covers 4 pixels"):
        load_recipe("muse/tiny", [data, "base.model.image_size=18", "superres=null"]).trainer(tmp_path / "b")
    with pytest.raises(UserError, match="did you mean"):
        load_recipe("maskgit/tiny", ["model.transformer.dimm=3"])
    assert load_recipe("muse/paper", []).parts == ["vqgan", "superres_vqgan", "base", "superres"]
