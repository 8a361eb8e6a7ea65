"""The quantizer's trainer: codes that follow the sounds, runs that resume, ranks that agree."""

import json
import shutil
from pathlib import Path

import pytest
import soundfile
import torch
from launching import on_two_ranks
from quantizers_on_ranks import train, trainer
from safetensors.torch import load_file
from small_music import recorded, small_mulan, small_quantizer, tones

import madrigal
from madrigal.engine.checkpoint import checkpoint_name
from madrigal.errors import UserError
from madrigal.musiclm.clip_latents import LatentDataset
from madrigal.musiclm.loading import load_embed_quantizer
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer

LONGER = [f"plan.{one}" for one in ("num_train_steps=120", "lr=0.03", "save_results_every=120", "batch_size=6")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("music")
    recorded(folder / "recordings")
    small_mulan().save_pretrained(folder / "mulan")
    return folder


def test_MU2_codes_and_tables_are_learned_and_saved(place: Path, tmp_path: Path) -> None:
    made = trainer(place, tmp_path / "run", *LONGER)
    start = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    made.train()
    lines = list(map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines()))
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    for name in ("rq.codebooks.vectors", "tables.semantic.weight", "tables.coarse.weight", "tables.fine.weight"):
        assert not torch.equal(made.model.state_dict()[name], start[name])
    saved = load_file(tmp_path / "run/checkpoints/step-00000120/model.safetensors")
    assert {"rq.codebooks.vectors", "tables.fine.weight", "means"} <= set(saved)
    assert not any(name.startswith("mulan.") for name in saved)
    again = load_embed_quantizer(tmp_path / "run")
    assert again.rq.initialized
    assert again.ids_of(texts=["a low hum"]).shape == (1, 3)


def test_MU2_codes_are_told_apart_that_the_first_batch_did_not_show(tmp_path: Path) -> None:
    """64 groups of sounds, of which the first batch has four."""
    made = MuLaNEmbedQuantizer(small_mulan(), 8, rq_num_quantizers=1, codebook_size=16, center=False)
    centres = torch.nn.functional.normalize(torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    data = LatentDataset(centres.repeat(8, 1), torch.zeros(0, 8))
    options = {"batch_size": 4, "valid_frac": 0.0, "save_model_every": 400, "save_results_every": 400}
    training = madrigal.MuLaNEmbedQuantizerTrainer(
        made, dataset=data, num_train_steps=300, results_folder=tmp_path, lr=1e-3, **options
    )
    training.train()
    assert len(set(made.quantize(centres).codes[:, 0, 0].tolist())) >= 12


def test_X3_resumed_ends_bit_identical(place: Path, tmp_path: Path) -> None:
    trainer(place, tmp_path / "whole").train()
    stopped = trainer(place, tmp_path / "broken")
    for _ in range(4):
        stopped.train_step()
    stopped.save(stopped.run.checkpoints / checkpoint_name(4))
    trainer(place, tmp_path / "broken", resume=True).train()
    for file in ("model", "ema", "optimizer"):
        name = f"checkpoints/step-00000008/{file}.safetensors"
        left, right = load_file(tmp_path / "whole" / name), load_file(tmp_path / "broken" / name)
        assert left.keys() == right.keys()
        assert all(torch.equal(tensor, right[key]) for key, tensor in left.items())


def test_two_ranks_are_one_with_twice_the_accumulation(place: Path, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    on_two_ranks(Path(__file__).parent / "quantizers_on_ranks.py", place, tmp_path / "two", 1)
    train(place, tmp_path / "one", 2)
    first, second = (load_file(tmp_path / "two" / f"rank-{rank}.safetensors") for rank in (0, 1))
    alone = load_file(tmp_path / "one/rank-0.safetensors")
    assert first.keys() == second.keys() == alone.keys()
    for key in first:
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], alone[key], atol=1e-5, rtol=1e-4)


def test_sounds_without_captions_say_that_texts_have_no_mean_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sounds = torch.nn.functional.normalize(torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    options = {"num_train_steps": 1, "batch_size": 8, "valid_frac": 0.0}
    for name, texts, center in (("neither", 0, True), ("left", 0, False), ("captioned", 4, True)):
        made = MuLaNEmbedQuantizer(small_mulan(), 8, rq_num_quantizers=1, codebook_size=4, center=center)
        data = LatentDataset(sounds, -sounds[:texts])
        madrigal.MuLaNEmbedQuantizerTrainer(made, dataset=data, results_folder=tmp_path / name, **options).train()
        assert ("There are no captions" in capsys.readouterr().err) == (name == "neither")
        assert torch.equal(made.means[0], made.means[1]) == (texts == 0)


def test_embeddings_are_computed_once(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer(place, tmp_path / "run", "plan.num_train_steps=2").train()
    (kept,) = (tmp_path / "run/data/train").glob("latents-*.safetensors")
    assert load_file(kept)["sounds"].shape == (8, 8)
    monkeypatch.setattr("madrigal.musiclm.mulan.MuLaN.get_audio_latents", None)
    trainer(place, tmp_path / "run", "plan.num_train_steps=3", resume=True).train()


def test_a_broken_recording_is_left_out(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place, tmp_path / "place")
    (tmp_path / "place/recordings/5.wav").write_bytes(b"RIFFgarbage")
    soundfile.write(tmp_path / "place/recordings/6.wav", torch.zeros(0).numpy(), 16000)
    trainer(tmp_path / "place", tmp_path / "run", "plan.num_train_steps=2").train()
    (kept,) = (tmp_path / "run/data/train").glob("latents-*.safetensors")
    assert load_file(kept)["sounds"].shape == (6, 8)
    assert "2 of 8 recordings cannot be read, and are left out" in capsys.readouterr().err
    noted = (tmp_path / "run/data/train/rejected.jsonl").read_text().splitlines()
    assert [Path(json.loads(line)["path"]).name for line in noted] == ["5.wav", "6.wav"]
    for file in (tmp_path / "place/recordings").glob("*.wav"):
        file.write_bytes(b"RIFFgarbage")
    with pytest.raises(UserError, match="None of the 8 recordings can be read"):
        trainer(tmp_path / "place", tmp_path / "other")


def test_sound_in_batches_is_heard_as_it_is_in_a_manifest(place: Path, tmp_path: Path) -> None:
    made = trainer(place, tmp_path / "run")
    item = made.data.feed("all turns").micro_batches(0)[0]
    audio = torch.randn(2, 1, 16000)
    lengths = torch.tensor([16000, 8000])
    heard = made._latents({"audio": audio, "lengths": lengths})
    alone = made.model.mulan.get_audio_latents(audio[1:, 0, :8000])
    torch.testing.assert_close(heard[1:], alone, atol=1e-5, rtol=1e-4)
    assert made._latents(item) is item["latents"]


def test_a_run_goes_on_with_its_own_mulan_only(place: Path, tmp_path: Path) -> None:
    trainer(place, tmp_path / "run", "plan.num_train_steps=2").train()
    small_mulan(7).save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="another mulan"):
        trainer(place, tmp_path / "run", f"mulan={tmp_path / 'other'}", resume=True)


def test_a_run_is_loaded_with_its_own_mulan_only(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "whole")
    trainer(tmp_path / "whole", tmp_path / "whole/quantizer", "plan.num_train_steps=2").train()
    codes = load_embed_quantizer(tmp_path / "whole/quantizer").ids_of(wavs=tones(8))
    shutil.copytree(tmp_path / "whole", tmp_path / "copy")
    shutil.copytree(tmp_path / "whole/quantizer", tmp_path / "alone/quantizer")
    small_mulan(7).save_pretrained(tmp_path / "whole/mulan")  # as if it had been trained on
    for run in ("whole", "alone"):
        with pytest.raises(UserError, match="another MuLaN"):
            load_embed_quantizer(tmp_path / run / "quantizer")
    with pytest.raises(UserError, match="another MuLaN"):
        MuLaNEmbedQuantizer.from_pretrained(tmp_path / "copy/quantizer", mulan=small_mulan(7))
    # A copy of the whole has the one that it was trained with beside it.
    assert torch.equal(load_embed_quantizer(tmp_path / "copy/quantizer").ids_of(wavs=tones(8)), codes)
    (tmp_path / "alone/mulan").mkdir()
    with pytest.raises(UserError, match="another MuLaN"):
        load_embed_quantizer(tmp_path / "alone/quantizer")


def test_every_option_of_the_quantizer_changes_something() -> None:
    base = small_quantizer()
    assert small_quantizer(rq_num_quantizers=2).ids_of(texts=["a"]).shape == (1, 2)
    sounds = base.placed(base.mulan.get_audio_latents(tones(32)))
    assert (
        int(base.quantize(sounds).codes.max()) >= 4 > int(small_quantizer(codebook_size=4).quantize(sounds).codes.max())
    )
    assert small_quantizer(dims=8).width_of("fine") == 8
    with pytest.raises(UserError, match="as many conditioning_dims"):
        small_quantizer(dims=(8, 8))
    with pytest.raises(UserError, match="1 or more"):
        small_quantizer(dims=0)


def test_a_code_keeps_less_of_itself_the_smaller_rq_ema_decay_is() -> None:
    moved = []
    for decay in (0.0, 0.5, 0.99):
        made = small_quantizer(rq_num_quantizers=1, rq_ema_decay=decay)
        code = made.rq.codebooks.vectors[0, 0, 3].clone()
        sounds = (code + 0.01).expand(64, -1)
        assert made.quantize(sounds, collect=True).codes.unique().tolist() == [3]
        made.rq.commit()
        moved.append(float((made.rq.codebooks.vectors[0, 0, 3] - code).mean()))
    assert moved[0] == pytest.approx(0.01, abs=1e-4)  # it keeps nothing
    assert moved[0] > moved[1] > moved[2] > 0
