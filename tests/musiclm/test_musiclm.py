"""Music from text: every stage has its own table, samples are ranked, lengths are kept."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_music import small_mulan, small_quantizer, tones

import madrigal
from madrigal.audiolm.loading import load_audiolm
from madrigal.audiolm.pipeline import AudioLM
from madrigal.errors import UserError
from madrigal.musiclm.loading import export_musiclm, load_embed_quantizer, load_musiclm
from madrigal.musiclm.music import MusicLM
from madrigal.verbs.systems import load_recipe

FRAME = 320
TEXTS = ["a low hum", "a high whistle"]


def test_its_public_names() -> None:
    assert madrigal.MusicLM is MusicLM
    assert madrigal.load_musiclm is load_musiclm


def test_MU1_each_stage_is_asked_with_its_own_table(music: MusicLM, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    lm = music.audio_lm
    for name, stage in (("semantic", lm.semantic), ("coarse", lm.coarse), ("fine", lm.fine)):
        assert stage is not None
        own, plain = stage.audio_conditioner, stage.audio_conditioner.forward

        def heard(name: str = name, plain: Any = plain, **given: Any) -> torch.Tensor:
            asked[name] = (given["namespace"], given["ids"], plain(**given))
            return asked[name][2]

        monkeypatch.setattr(own, "forward", heard)
    music("a low hum", seconds=0.2)
    assert {name: namespace for name, (namespace, _, _) in asked.items()} == {n: n for n in asked}
    assert len(asked) == 3
    ids = [one for _, one, _ in asked.values()]
    assert torch.equal(ids[0], ids[1])
    assert torch.equal(ids[0], ids[2])
    tables = [table for _, _, table in asked.values()]
    assert not torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_MU2_AT1_the_stages_learn_their_tables_and_keep_them(music_run: Path) -> None:
    start = load_embed_quantizer(music_run)
    for name in ("semantic", "coarse", "fine"):
        saved = load_file(music_run / name / "checkpoints/step-00000004/model.safetensors")
        own = {key for key in saved if key.startswith("audio_conditioner.tables.")}
        assert own == {f"audio_conditioner.tables.{name}.weight"}
        learned = saved[f"audio_conditioner.tables.{name}.weight"]
        assert not torch.equal(learned, start.tables[name].weight)  # type: ignore[union-attr,arg-type]
        assert not any(".mulan." in key or ".rq." in key for key in saved)
    lm = load_audiolm([music_run], averaged=False)
    weight = lm.coarse_transformer.audio_conditioner.tables["coarse"].weight  # type: ignore[union-attr,index]
    kept = load_file(music_run / "coarse/checkpoints/step-00000004/model.safetensors")
    assert torch.equal(weight, kept["audio_conditioner.tables.coarse.weight"])  # type: ignore[arg-type]


def test_texts_together_are_the_texts_one_by_one(music: MusicLM) -> None:
    together = music(TEXTS, seconds=0.4, seed=3)
    assert together.shape == (2, 20 * FRAME)
    for row, text in zip(together, TEXTS, strict=True):
        assert torch.equal(row, music(text, seconds=0.4, seed=3))


def test_a_seed_repeats_and_another_differs(music: MusicLM) -> None:
    first = music("a low hum", seconds=0.4, seed=1)
    assert torch.equal(first, music("a low hum", seconds=0.4, seed=1))
    assert not torch.equal(first, music("a low hum", seconds=0.4, seed=2))


@pytest.mark.parametrize("seconds", [0.1, 0.5, 2.5])
def test_length_in_seconds_to_the_frame(music: MusicLM, seconds: float) -> None:
    """The last is longer than what the stages were trained on: it is made in windows."""
    assert music("a low hum", seconds=seconds).shape == (round(seconds * 16000 / FRAME) * FRAME,)


def test_MU16_the_best_of_several_is_kept(music: MusicLM) -> None:
    (drawn,) = music.draw("a low hum", 4, seconds=0.4, seed=5)
    assert drawn.scores == sorted(drawn.scores, reverse=True)
    latent = music.mulan_embed_quantizer.mulan.get_text_latents(["a low hum"])[0]
    for wave, score in zip(drawn.waves, drawn.scores, strict=True):
        assert music.similarity(wave, latent) == pytest.approx(score, abs=1e-5)
    alone = [music("a low hum", seconds=0.4, seed=5 + sample) for sample in range(4)]
    best = max(alone, key=lambda wave: music.similarity(wave, latent))
    assert torch.equal(drawn.waves[0], best)
    assert torch.equal(music("a low hum", 4, seconds=0.4, seed=5), best)


def test_MU16_samples_of_several_prompts_are_ranked_each_by_its_own(music: MusicLM) -> None:
    both = music.draw(TEXTS, 3, seconds=0.3, seed=2)
    for drawn, text in zip(both, TEXTS, strict=True):
        (alone,) = music.draw(text, 3, seconds=0.3, seed=2)
        assert drawn.scores == pytest.approx(alone.scores, abs=1e-5)
        assert all(torch.equal(*pair) for pair in zip(drawn.waves, alone.waves, strict=True))


def test_MU16_what_is_ranked_is_heard_at_the_rate_of_the_mulan(music: MusicLM) -> None:
    time = torch.arange(32000) / 32000
    at_twice = 0.3 * torch.sin(2 * torch.pi * 880 * time) + 0.2 * torch.sin(2 * torch.pi * 1234 * time)
    wave = at_twice[::2]
    here, there = music.heard(wave, 16000), music.heard(at_twice, 32000)
    wrong = music.heard(at_twice, 16000)  # an octave too low
    assert float((here - there).norm()) < 0.5 * float((here - wrong).norm())


def test_MU16_waves_of_several_lengths_are_ranked_too(music: MusicLM, monkeypatch: pytest.MonkeyPatch) -> None:
    waves = [tones(2)[0][:6400], tones(2)[1]]
    monkeypatch.setattr(music.audio_lm, "forward", lambda **_: waves)
    (drawn,) = music.draw("a low hum", 2)
    assert sorted(len(wave) for wave in drawn.waves) == [6400, 16000]


def test_a_sound_may_stand_in_the_place_of_a_text(music: MusicLM) -> None:
    low, high = tones(8)[0], tones(8)[7]
    made = music(audio=low[None], audio_sample_hz=16000, seconds=0.4)
    assert made.shape == (20 * FRAME,)
    ids = [music.mulan_embed_quantizer.ids_of(wavs=wave[None]) for wave in (low, high)]
    assert not torch.equal(*ids)
    assert torch.equal(made, music(audio=low[None], audio_sample_hz=16000, seconds=0.4))
    assert not torch.equal(made, music(audio=high[None], audio_sample_hz=16000, seconds=0.4))
    with pytest.raises(UserError, match="leave one out"):
        music("a low hum", audio=low[None])


def test_a_prompt_is_gone_on_from(music: MusicLM) -> None:
    prompt = tones(2)[1][: 20 * FRAME]
    made = music("a low hum", prime_wave=prompt, seconds=0.2)
    assert made.shape == (30 * FRAME,)
    alone = music(prime_wave=prompt, seconds=0.2)  # the prompt's own embedding is what is asked for
    assert alone.shape == (30 * FRAME,)


def test_what_cannot_be_made_is_said(music: MusicLM, music_run: Path) -> None:
    for text, reason in (("  ", "empty"), (None, "Give a text")):
        with pytest.raises(UserError, match=reason):
            music(text, seconds=0.2)
    with pytest.raises(UserError, match="num_samples is 0"):
        music("a hum", 0)
    with pytest.raises(UserError, match="neither a run of musiclm"):
        load_musiclm(music_run / "semantic")


def test_stages_without_a_condition_are_refused(music: MusicLM) -> None:
    lm = music.audio_lm
    options = lm.semantic_transformer.config.model_dump() | {"audio_text_condition": False}
    plain = type(lm.semantic_transformer)(**options)
    bare = AudioLM(
        wav2vec=lm.wav2vec,
        codec=lm.codec,
        semantic_transformer=plain,
        coarse_transformer=lm.coarse_transformer,
        fine_transformer=lm.fine_transformer,
    )
    with pytest.raises(UserError, match="semantic stage was trained without a conditioner"):
        MusicLM(bare, music.mulan_embed_quantizer)


def test_a_folder_holds_everything(music: MusicLM, music_run: Path, tmp_path: Path) -> None:
    folder = export_musiclm(music_run, tmp_path / "music")
    again = load_musiclm(folder)
    assert torch.equal(again("a low hum", seconds=0.3), music("a low hum", seconds=0.3))
    with pytest.raises(UserError, match="holds a model already"):
        export_musiclm(music_run, folder)
    moved = folder.rename(tmp_path / "elsewhere")
    assert torch.equal(load_musiclm(moved)("a low hum", seconds=0.3), music("a low hum", seconds=0.3))


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_export_takes_the_place_of_a_run_or_of_anything_else(
    music_run: Path, tmp_path: Path, overwrite: bool
) -> None:
    shutil.copytree(music_run, tmp_path / "run")
    (tmp_path / "mine/codec").mkdir(parents=True)
    (tmp_path / "mine/codec/notes.txt").write_text("not a model")
    before = sorted(tmp_path.rglob("*"))
    for target, why in {"run": "is a run", "run/semantic": "is a run", "run/new": "lies in the run"}.items():
        with pytest.raises(UserError, match=why):
            export_musiclm(tmp_path / "run", tmp_path / target, overwrite=overwrite)
    with pytest.raises(UserError, match="no exported model; name a new folder"):
        export_musiclm(tmp_path / "run", tmp_path / "mine", overwrite=overwrite)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_is_known_by_its_real_place(music_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(music_run, tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run/semantic")
    with pytest.raises(UserError, match="lies in the run"):
        export_musiclm(music_run, tmp_path / "link/new")
    (tmp_path / "recipe.yaml").write_text("soup: of the day")  # no run's
    monkeypatch.chdir(tmp_path / "run")
    assert (export_musiclm(music_run, "../exported") / "config.json").is_file()


def test_what_only_looks_like_a_model_is_not_replaced(music_run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine/codec").mkdir(parents=True)
    (tmp_path / "mine/config.json").write_text('{"port": 80}')
    (tmp_path / "mine/codec/thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="no exported model"):
        export_musiclm(music_run, tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine/codec/thesis.txt").exists()


def test_stages_of_another_quantizer_are_refused(music_run: Path) -> None:
    with pytest.raises(UserError, match="conditioner"):
        load_audiolm([music_run], audio_conditioner=small_quantizer(small_mulan(4)))


def test_codes_of_the_recordings_lie_on_disk(music_run: Path) -> None:
    (found,) = (music_run / "tokens/train").glob("mulan-quantizer-*/tokens.json")
    assert load_embed_quantizer(music_run).fingerprint() in found.parent.name


def test_a_finished_run_trains_nothing_again(music_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = load_recipe(str(music_run / "recipe.yaml"), [])
    recipe.trainer(music_run, resume=True).train()
    assert capsys.readouterr().err.count("is finished") == 7


def test_parts_that_exist_are_taken(music_run: Path, tmp_path: Path) -> None:
    names = ("mulan", "quantizer", "tokenizer", "codec")
    changes = [f"{name}={music_run / name}" for name in names]
    data = f"data={music_run.parent / 'recordings'}"
    load_recipe("musiclm/tiny", [data, *changes, "fine=null", "coarse.model.num_coarse_quantizers=4"]).trainer(
        tmp_path / "run"
    ).train()
    assert not any((tmp_path / "run" / name).exists() for name in (*names, "fine"))
    assert load_musiclm(tmp_path / "run")("a hum", seconds=0.2).shape == (10 * FRAME,)
    with pytest.raises(UserError, match="draw 5 levels"):
        load_recipe("musiclm/tiny", [data, *changes, "fine=null", "coarse.model.num_coarse_quantizers=5"]).trainer(
            tmp_path / "other"
        )
