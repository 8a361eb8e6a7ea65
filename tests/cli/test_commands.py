"""Each verb on something tiny, as a person or a program would use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile
import torch
import yaml
from shell import RATES, RECIPE, contents, done, madrigal, train
from spoiled import RATE, spoil, voice

from madrigal.cli import VERBS, main
from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


# The command itself.


def test_a_command_that_is_stopped_says_so_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("madrigal.engine.machine.prepare_process", stopped)
    with pytest.raises(SystemExit) as left:
        main(["compress", "in.wav", "out.mgl"])
    assert left.value.code == 130
    assert capsys.readouterr().err.strip() == "madrigal: stopped."


INTERRUPTED = """
import os, signal, sys
from madrigal.__main__ import main

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                signal.pause()
            except KeyboardInterrupt:
                raise ImportError("cannot load module more than once per process") from None

sys.meta_path.insert(0, Finder())
sys.argv = ["madrigal", "say", "Hello", "-o", "hello.wav"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_while_it_is_being_loaded_is_told_in_a_line(module: str, tmp_path: Path) -> None:
    script = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr == "madrigal: stopped.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_holds_an_example(verb: str) -> None:
    said = done(verb, "--help")
    assert f"Example: madrigal {verb}" in " ".join(said.out.replace("`", "").split())
    assert said.err == ""


def test_help_lists_the_verbs() -> None:
    for said in (done("--help"), done()):
        assert all(verb in said.out for verb in VERBS)


def test_it_says_which_version_it_is() -> None:
    from madrigal import __version__

    assert done("--version").out.strip() == f"madrigal {__version__}"


def test_help_does_not_wait_for_torch() -> None:
    check = "import sys; from madrigal.cli import main; main(['train', '--help']); assert 'torch' not in sys.modules"
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr


def test_debug_shows_where_a_mistake_was_found(here: Path) -> None:
    with pytest.raises(UserError, match="There is no folder nowhere"):
        madrigal("--debug", "prepare", "nowhere")
    command = [sys.executable, "-m", "madrigal.cli", "prepare", "nowhere", "--debug"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 1
    assert process.stderr.startswith("Traceback")
    assert "There is no folder nowhere" in process.stderr


# prepare


def test_prepare(here: Path) -> None:
    spoil(Path("recordings"), "text.wav")
    said = done("prepare", "recordings", "-o", "prepared")
    assert said.out.splitlines() == [
        f"6 files, 0.00 hours -> {here}/prepared/manifest.jsonl",
        f"1 rejected (1 not audio): see {here}/prepared/rejected.jsonl",
    ]
    entries = [json.loads(line) for line in Path("prepared/manifest.jsonl").read_text().splitlines()]
    assert [Path(entry["path"]).name for entry in entries] == [f"{number}.wav" for number in range(6)]
    assert all(entry["duration"] == pytest.approx(0.6) for entry in entries)


def test_prepare_chooses_a_folder_of_its_own(here: Path) -> None:
    said = done("prepare", "recordings", "--json")
    assert said.json == {
        "manifest": f"{here}/prepared/recordings/manifest.jsonl",
        "files": 6,
        "seconds": pytest.approx(3.6),
        "rejected": {},
    }
    assert Path(said.json["manifest"]).is_file()


def test_prepare_again_replaces_the_manifest(here: Path) -> None:
    done("prepare", "recordings")
    soundfile.write("recordings/more.flac", voice(pitch=333), RATE)
    assert done("prepare", "recordings", "--json").json["files"] == 7


# train


def test_train_lists_its_recipes() -> None:
    assert RECIPE in done("train", "--list").out.splitlines()


def test_train_leaves_a_run_that_tells_everything(here: Path) -> None:
    said = done(*train("plan.lr=2e-3", data="recordings"))
    assert "step 4/4" in said.err
    assert {path.name for path in Path("runs/new").iterdir()} >= {
        "recipe.yaml",
        "environment.json",
        "metrics.jsonl",
        "samples",
        "checkpoints",
    }
    assert Path("runs/new/recipe.name").read_text() == f"{RECIPE}\n"
    recipe = yaml.safe_load(Path("runs/new/recipe.yaml").read_text())
    assert recipe["system"] == "soundstream"
    assert recipe["plan"]["lr"] == 2e-3
    assert recipe["data"]["path"] == "recordings"
    steps = [json.loads(line)["step"] for line in Path("runs/new/metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == [1, 2, 3, 4]
    assert [path.name for path in sorted(Path("runs/new/samples/step-00000004").iterdir())] == [
        "000-original.wav",
        "000-reconstruction-ema.wav",
        "000-reconstruction.wav",
    ]


def test_train_takes_a_prepared_folder_and_a_manifest(here: Path) -> None:
    done("prepare", "recordings", "-o", "prepared")
    before = contents("prepared")
    done(*train(data="prepared", run="runs/folder"))
    done(*train(data="prepared/manifest.jsonl", run="runs/file"))
    weights = [contents(f"runs/{name}/checkpoints/step-00000004")["model.safetensors"] for name in ("folder", "file")]
    assert weights[0] == weights[1]
    assert contents("prepared") == before


def test_train_takes_a_folder_that_is_called_like_a_number(here: Path) -> None:
    Path("recordings").rename("2024")
    done(*train(data="2024"))
    assert yaml.safe_load(Path("runs/new/recipe.yaml").read_text())["data"]["path"] == "2024"


def test_resume_goes_on_to_the_weights_of_an_unbroken_run(here: Path) -> None:
    done(*train("plan.num_train_steps=6", run="runs/unbroken"))
    said = done("train", "plan.num_train_steps=6", "--resume", "--run", "runs/codec")
    assert "Resumed runs/codec at step 4" in said.err
    ends = [contents(f"runs/{name}/checkpoints/step-00000006") for name in ("unbroken", "codec")]
    for part in ("model.safetensors", "ema.safetensors", "optimizer.safetensors"):
        assert ends[0][part] == ends[1][part]


def test_resume_with_another_seed_and_batch_says_so_and_keeps_the_old_recipe(here: Path) -> None:
    before = Path("runs/codec/recipe.yaml").read_text()
    said = done(
        "train", "plan.num_train_steps=5", "plan.seed=7", "plan.batch_size=1", "--resume", "--run", "runs/codec"
    )
    assert "Not as before: plan.num_train_steps 4 -> 5, plan.batch_size 2 -> 1, plan.seed 0 -> 7\n" in said.err
    assert Path("runs/codec/recipe.step-00000004.yaml").read_text() == before
    assert "seed: 7" in Path("runs/codec/recipe.yaml").read_text()
    assert len(done("runs", "--json").json) == 2


def test_train_by_a_budget_of_seconds(here: Path) -> None:
    soundfile.write("recordings/long.wav", voice(2.0), RATE)
    words = ("data.max_length_seconds=null", "plan.seconds_per_batch=2.5", "plan.valid_frac=0.3")
    done(*train(*words, "plan.num_train_steps=null", "plan.num_train_epochs=1"))
    assert yaml.safe_load(Path("runs/new/recipe.yaml").read_text())["plan"]["seconds_per_batch"] == 2.5


def test_resume_of_a_run_that_never_began_begins_it(here: Path) -> None:
    said = done(*train(options="--resume"))
    assert "starting at step 0" in said.err
    assert Path("runs/new/checkpoints/step-00000004").is_dir()


def test_overwrite_starts_over(here: Path) -> None:
    Path("runs/codec/notes.txt").write_text("mine")
    done(*train("plan.num_train_steps=2", run="runs/codec", options="--overwrite"))
    assert [path.name for path in Path("runs/codec/checkpoints").iterdir()] == ["step-00000002"]
    assert Path("runs/codec/notes.txt").read_text() == "mine"


def test_a_training_that_is_told_to_stop_saves_and_can_go_on(here: Path) -> None:
    words = train("plan.num_train_steps=100000", "plan.save_model_every=100000", "plan.save_results_every=100000")
    with open("said.txt", "w") as said:
        process = subprocess.Popen([sys.executable, "-m", "madrigal.cli", *words], stderr=said, env=environment())
    while process.poll() is None and not Path("runs/new/metrics.jsonl").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, Path("said.txt").read_text()
    assert "go on with --resume" in Path("said.txt").read_text()
    (checkpoint,) = Path("runs/new/checkpoints").iterdir()
    step = int(checkpoint.name.removeprefix("step-"))
    assert f"at step {step}" in done("train", f"plan.num_train_steps={step + 1}", "--resume", "--run", "runs/new").err


# runs


def test_runs(here: Path) -> None:
    first, second = done("runs").out.splitlines()
    assert first.startswith("runs/codec  soundstream  step 4/4  ")
    assert "valid/mel" in first
    assert second.startswith("runs/other")
    rows = done("runs", "runs", "--json").json
    assert [(row["run"], row["step"], row["num_train_steps"]) for row in rows] == [
        ("runs/codec", 4, 4),
        ("runs/other", 4, 4),
    ]


# export


def test_export_gives_what_the_run_gives(here: Path) -> None:
    done("export", "runs/codec", "new/online", "--online")
    assert sorted(path.name for path in Path("exported").iterdir()) == ["config.json", "model.safetensors"]
    wave = torch.from_numpy(voice()).T[None]
    codes = [SoundStream.from_pretrained(name).tokenize(wave) for name in ("runs/codec", "exported", "new/online")]
    assert torch.equal(codes[0], codes[1])
    assert codes[2].shape == codes[0].shape
    done("export", "runs/codec/checkpoints/step-00000002", "new/earlier")


def test_an_exported_model_may_be_read_by_whom_the_umask_lets(here: Path) -> None:
    before = os.umask(0o027)
    try:
        done("export", "runs/codec", "new")
    finally:
        os.umask(before)
    assert {oct(path.stat().st_mode & 0o777) for path in Path("new").iterdir()} == {"0o640"}
    checkpoint = Path("runs/codec/checkpoints/step-00000004")
    assert {oct(path.stat().st_mode & 0o777) for path in checkpoint.iterdir()} == {oct(0o666 & ~before)}


# compress and decompress


@pytest.mark.parametrize("samples", [1, 319, 321, 9600])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (8_000, 1)])
def test_what_is_compressed_comes_back_with_its_length_rate_and_channels(
    here: Path, samples: int, rate: int, channels: int
) -> None:
    soundfile.write("in.wav", voice(channels=channels)[:samples], rate)
    done("compress", "in.wav", "in.mgl", "--codec", "exported", "--kbps", str(0.4 * channels))
    assert done("decompress", "in.mgl", "out.flac", "--codec", "exported").out == "out.flac\n"
    info = soundfile.info("out.flac")
    assert (info.frames, info.samplerate, info.channels) == (samples, rate, channels)


def test_compress_tells_what_it_made(here: Path) -> None:
    words = ("compress", "recordings/0.wav", "new.mgl", "--codec", "runs/codec", "--kbps", RATES[0])
    said = done(*words, "--json")
    size = Path("new.mgl").stat().st_size
    assert said.json == {
        "seconds": pytest.approx(0.6),
        "bytes": size,
        "kbps": pytest.approx(size * 8 / 600),
        "file": "new.mgl",
    }
    assert f"{size} bytes" in done(*words, "--overwrite").out


def test_more_bits_make_a_larger_file(here: Path) -> None:
    for kbps in RATES:
        done("compress", "recordings/0.wav", f"{kbps}.mgl", "--codec", "exported", "--kbps", kbps)
    sizes = [Path(f"{kbps}.mgl").stat().st_size for kbps in RATES]
    assert sizes == sorted(set(sizes))


def test_the_same_codec_under_another_name_decompresses(here: Path) -> None:
    for name in ("exported", "runs/codec", "runs/codec/checkpoints/step-00000004"):
        done("decompress", "speech.mgl", "new.wav", "--codec", name, "--overwrite")


# evaluate


def test_evaluate_writes_a_report(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.judge.pool.processors", lambda: 0)
    said = done("evaluate", "runs/codec", "--kbps", "0.2,0.6", "--limit", "1", "--no-opus")
    assert "Report: runs/codec/evaluation/report.html" in said.out
    folder = Path("runs/codec/evaluation")
    assert {path.name for path in folder.iterdir()} >= {"report.html", "report.json", "spectrograms.png"}
    report = json.loads((folder / "report.json").read_text())
    assert report["utterances"] == 1


def test_the_table_of_an_evaluation_is_not_cut_where_it_is_piped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.judge.pool.processors", lambda: 0)
    Path("runs/codec").rename("runs/a-codec-with-a-rather-long-name")
    said = done("evaluate", "runs/a-codec-with-a-rather-long-name", "--kbps", "0.2", "--limit", "1", "--no-opus")
    (row,) = [line for line in said.out.splitlines() if "Madrigal a-codec-with-a-rather-long-name 0.2 kbps" in line]
    report = json.loads(Path("runs/a-codec-with-a-rather-long-name/evaluation/report.json").read_text())
    metrics = report["systems"][1]["metrics"]
    assert len(metrics) > 3
    assert f"{metrics['si_sdr']['mean']:.1f}" in row
    assert "…" not in said.out


def test_evaluate_on_other_recordings_without_a_recogniser(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.judge.pool.processors", lambda: 0)
    monkeypatch.setattr("madrigal.evaluation.find_recogniser", lambda: None)
    Path("recordings/0.txt").write_text("One.")
    words = ("evaluate", "exported", "--kbps", "0.4", "--limit", "2", "--no-opus", "--json", "-o", "judged")
    report = done(*words, "--data", "recordings").json
    assert report["utterances"] == 2
    assert any("for want of a recogniser" in note for note in report["notes"])
    Path("one").mkdir()
    Path("recordings/1.wav").rename("one/1.wav")
    assert done(*words, "--data", "one").json["utterances"] == 1
