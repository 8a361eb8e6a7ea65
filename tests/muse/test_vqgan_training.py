"""VQGanVAETrainer: it learns, resumes to the bit, is the same on two ranks, and leaves frozen what is frozen."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from trained import ranks_equal_one, resumed_equals_unbroken
from vqgan_toys import QUANTIZERS, pictures, tiny_vae, vqgan_trainer, write_pictures

from madrigal.data.picture_source import PictureSource
from madrigal.errors import UserError
from madrigal.muse.vae import VQGanVAE
from madrigal.muse.vae_trainer import VQGanVAETrainer

SCRIPT = Path(__file__).parent / "vqgan_on_ranks.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures")


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_it_overfits_one_batch(kind: str, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "one", count=2)
    quantizer = {"quantizer": "vq", "codebook_size": 64} if kind == "vq" else QUANTIZERS[kind]
    vae = tiny_vae(**{"levels": None, **quantizer, "use_vgg_and_gan": False, "dim": 16})
    trainer = vqgan_trainer(folder, tmp_path / "run", vae, lr=5e-3, valid_frac=0.0, num_train_steps=60)
    values = [trainer.train_step()["recon"] for _ in range(60)]
    assert values[-1] < 0.5 * values[0]


def test_MS8_it_trains_without_a_gan(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", tiny_vae(use_vgg_and_gan=False))
    assert [turn.name for turn in trainer.turn_states] == ["generator"]
    assert {"recon", "commitment", "loss"} <= trainer.train_step().keys()


def test_MS1_a_resumed_run_ends_as_one_that_nobody_touched(folder: Path, tmp_path: Path) -> None:
    options = {"num_train_steps": 6, "save_model_every": 3, "discr_start_step": 1, "save_results_every": 6}
    make = lambda run, resume: vqgan_trainer(folder, run, resume=resume, **options)
    whole, _ = resumed_equals_unbroken(make, tmp_path, stop=3, steps=6)
    # Every file that a trainer writes is one that a loader reads, the averaged weights among them.
    found = VQGanVAE.from_pretrained(tmp_path / "whole", discriminators=False)
    other = tiny_vae(seed=5)
    other.load(tmp_path / "whole/checkpoints/step-00000006")
    assert whole.ema is not None
    for name, tensor in whole.ema.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
        assert torch.equal(other.state_dict()[name], tensor), name


def test_MS9_a_grid_of_originals_and_what_came_back_is_written_once(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", num_train_steps=1, valid_frac=0.25)
    trainer.train()
    samples = tmp_path / "run/samples/step-00000001"
    names = ["000-original.png", "000-reconstruction-ema.png", "000-reconstruction.png"]
    assert sorted(path.name for path in samples.iterdir()) == names
    assert Image.open(samples / names[0]).size == (32, 16)
    assert Image.open(samples / names[1]).size == (32, 32)
    valid = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()][-1]
    for prefix in ("valid/", "valid/ema/"):
        assert {prefix + name for name in ("recon", "psnr", "ssim", "perplexity")} <= valid.keys()
    assert 1 <= valid["valid/perplexity"] <= 64


def test_MS9_only_the_main_rank_writes_samples_and_nobody_keeps_gradients(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", valid_frac=0.25)
    make, seen = trainer.sample, []

    def watched(batch: Any) -> Any:
        made = trainer.model.decoder(trainer.model.encoder(batch["image"]))
        seen.append(made.requires_grad)
        return make(batch)

    monkeypatch.setattr(trainer, "sample", watched)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(VQGanVAETrainer, "is_main", property(lambda _: False))
        assert trainer.write_samples() == []
        assert seen == []  # nor does it compute them
    assert not list(tmp_path.glob("run/samples/*"))
    assert len(trainer.write_samples()) == 3
    assert seen == [False, False]  # online and averaged
    assert all(tensor.grad is None for tensor in trainer.model.parameters())


def test_validation_is_of_all_pictures_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", valid_frac=0.5)
    trainer.train_step()
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    assert trainer.validation() == trainer.validation()
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())


def test_MS4_penalty_has_its_cadence(folder: Path, tmp_path: Path) -> None:
    name = "discriminator/patch/penalty"
    for every, expected in ((2, [True, False, True, False]), (1, [True] * 4), (0, [False] * 4)):
        trainer = vqgan_trainer(folder, tmp_path / f"run{every}", apply_grad_penalty_every=every)
        assert [name in trainer.train_step() for _ in range(4)] == expected


def test_MS3_ema_beta_is_what_was_asked_for(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", ema_beta=0.5)
    first = trainer.model.decoder.last.weight.detach().clone()
    trainer.train_step()
    assert trainer.ema is not None
    average = trainer.ema.state_dict()
    expected = torch.lerp(first, trainer.model.decoder.last.weight.detach(), 0.5)
    torch.testing.assert_close(average["decoder.last.weight"], expected)
    assert not any(name.startswith(("discriminators.", "perceptual.")) for name in average)


def test_MS6_parameters_have_one_order_in_every_process(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run")
    named = [name for name, _ in trainer.model.named_parameters()]
    ordered = [name for turn in trainer.turn_states for name in turn.parameters]
    assert ordered == named


def test_MS7_a_given_network_is_in_no_optimizer_no_checkpoint_and_no_norm(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    trainer = vqgan_trainer(folder, tmp_path / "run", tiny_vae(vgg=network), num_train_steps=2)
    trainer.train()
    assert not network.training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    own = {id(p) for p in network.parameters()}
    for turn in trainer.turn_states:
        assert not any(id(p) in own for group in turn.optimizer.param_groups for p in group["params"])
    for file in (tmp_path / "run/checkpoints").rglob("*.safetensors"):
        assert not any("perceptual" in name for name in load_file(file)), file


def test_discriminators_start_later_and_take_their_turn(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", discr_start_step=1, discr_every=2)
    figures = [trainer.train_step() for _ in range(3)]
    assert "generator/adversarial" not in figures[0]
    assert figures[1].keys() >= {"generator/adversarial", "generator/adaptive_weight", "generator/perceptual"}
    assert ["discriminator/patch/discriminator" in step for step in figures] == [False, True, False]


def test_a_rectangle_is_trained_on_and_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    trainer = vqgan_trainer(folder, tmp_path / "run", image_size=(16, 8))
    assert trainer.data.sample_batch()["image"].shape[-2:] == (16, 8)
    trainer.train_step()
    with pytest.raises(UserError, match="a token covers 4 pixels a side"):
        vqgan_trainer(folder, tmp_path / "other", image_size=18)


def test_a_folder_and_a_source_are_not_both_taken(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder and a source, which both name its pictures"):
        vqgan_trainer(folder, tmp_path / "run", source=PictureSource(path=folder, image_size=16))
    assert not (tmp_path / "run").exists()


def test_a_codebook_starts_from_the_first_pictures(folder: Path, tmp_path: Path) -> None:
    vae = tiny_vae(quantizer="vq", codebook_size=8, levels=None)
    assert not vae.quantizer.initialized
    trainer = vqgan_trainer(folder, tmp_path / "run", vae)
    figures = trainer.train_step()
    assert vae.quantizer.initialized
    assert figures["generator/perplexity"] > 2


def test_x1_x12_two_trainers_in_one_process_and_eval_is_harmless(folder: Path, tmp_path: Path) -> None:
    trainers = [vqgan_trainer(folder, tmp_path / name) for name in ("one", "two")]
    assert trainers[0].train_step() == trainers[1].train_step()
    assert trainers[0].eval().step == 1


def test_MS10_a_folder_with_a_run_is_refused_and_nobody_is_asked(folder: Path, tmp_path: Path) -> None:
    vqgan_trainer(folder, tmp_path / "run", num_train_steps=1).train()
    with pytest.raises(UserError, match="already holds a run"):
        vqgan_trainer(folder, tmp_path / "run")


def test_half_of_the_pictures_are_mirrored_by_step_and_seed(folder: Path, tmp_path: Path) -> None:
    first, second = (
        vqgan_trainer(folder, tmp_path / name, seed=seed).data.feed("all turns").micro_batches(0)[0]["image"]
        for name, seed in (("one", 0), ("two", 0))
    )
    assert torch.equal(first, second)
    assert first.shape == pictures(2).shape


@pytest.mark.slow
def test_two_ranks_equal_one_with_twice_the_accumulation(folder: Path, tmp_path: Path) -> None:
    ranks_equal_one(SCRIPT, folder, tmp_path)
