"""A codec of log-mels: codes without phase, for language models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import Dataset

from madrigal.data.tokens import PAD
from madrigal.engine.checkpoint import checkpoint_name
from madrigal.errors import UserError
from madrigal.tokenizers.loading import load_codec
from madrigal.tokenizers.mel_codec import MelCodec
from madrigal.tokenizers.mel_codec_trainer import MelCodecPlan, MelCodecTrainer
from madrigal.verbs.systems import load_recipe

SMALL: dict[str, Any] = {
    "dim": 32,
    "encoder_depth": 1,
    "decoder_depth": 1,
    "latent_dim": 8,
    "codebook_size": 16,
    "num_quantizers": 3,
    "n_mels": 20,
    "n_fft": 640,
}
HOP = 320


def tones(rows: int = 8, seconds: float = 0.5) -> Tensor:
    """Waves [rows, 1, samples] of several pitches and levels."""
    time = torch.arange(int(seconds * 16000)) / 16000
    pitch = torch.linspace(120, 900, rows)[:, None]
    sweep = torch.sin(2 * torch.pi * pitch * time * (1 + 0.3 * time)) * torch.linspace(0.1, 0.6, rows)[:, None]
    return (sweep + 0.3 * torch.sin(6 * torch.pi * pitch * time) * sweep)[:, None]


class Tones(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"audio": tones()[index]}


def codec(**options: Any) -> MelCodec:
    torch.manual_seed(0)
    return MelCodec(**{**SMALL, **options}).eval()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> MelCodecTrainer:
    return train(tmp_path_factory.mktemp("mel-codec"), num_train_steps=150)


def train(run: Path, **plan: Any) -> MelCodecTrainer:
    given = {"batch_size": 8, "lr": 2e-3, "valid_frac": 0.0, "num_samples": 0, "dl_num_workers": 0, **plan}
    return MelCodecTrainer(codec(), plan=MelCodecPlan(**given), dataset=Tones(), results_folder=run).train()


def test_it_learns_one_batch(trained: MelCodecTrainer) -> None:
    lines = map(json.loads, (trained.run.path / "metrics.jsonl").read_text().splitlines())
    figures = [line["mel"] for line in lines if "mel" in line]
    assert figures[-1] < 0.3 * figures[0]


def test_sound_comes_back_and_each_codebook_brings_it_nearer(trained: MelCodecTrainer) -> None:
    model, waves = trained.model.eval(), tones()
    codes = model.tokenize(waves)
    assert codes.shape == (8, 25, 3)
    wanted = model.log_mels(waves)
    distances = []
    for count in (1, 2, 3):
        again = model.decode_from_codebook_indices(codes[..., :count])
        assert again.shape == waves.shape
        distances.append(float((model.log_mels(again) - wanted).abs().mean().detach()))
    assert distances[2] < distances[0]


def test_phase_does_not_change_the_codes(trained: MelCodecTrainer) -> None:
    model, waves = trained.model.eval(), tones()
    assert torch.equal(model.tokenize(waves), model.tokenize(-waves))


def test_rows_of_several_lengths_are_coded_as_alone(trained: MelCodecTrainer) -> None:
    model, waves = trained.model.eval(), tones(3)
    lengths = torch.tensor([8000, 3333, HOP])
    together = model.tokenize(waves, lengths)
    assert model.frames(lengths).tolist() == [25, 11, 1]
    for row, length in enumerate(lengths.tolist()):
        alone = model.tokenize(waves[row : row + 1, :, :length])[0]
        assert torch.equal(together[row, : len(alone)], alone)
        assert (together[row, len(alone) :] == PAD).all()


def test_a_folder_holds_everything(trained: MelCodecTrainer, tmp_path: Path) -> None:
    model = trained.model.eval()
    model.save_pretrained(tmp_path / "codec")
    again = load_codec(tmp_path / "codec")
    assert isinstance(again, MelCodec)
    assert again.fingerprint() == model.fingerprint() != codec().fingerprint()
    waves = tones()
    assert torch.equal(again.tokenize(waves), model.tokenize(waves))
    assert torch.equal(
        again.decode_from_codebook_indices(again.tokenize(waves)),
        model.decode_from_codebook_indices(model.tokenize(waves)),
    )


def test_the_run_is_a_codec_too(trained: MelCodecTrainer) -> None:
    assert load_codec(trained.run.path).num_quantizers == 3


def test_X3_resumed_ends_bit_identical(recordings: Path, tmp_path: Path) -> None:
    def trainer(run: str, **how: Any) -> MelCodecTrainer:
        options = [f"data={recordings}", "plan.num_train_steps=6", "plan.save_model_every=3"]
        made: MelCodecTrainer = load_recipe("mel-codec/tiny", options).trainer(tmp_path / run, **how)
        return made

    trainer("whole").train()
    stopped = trainer("broken")
    for _ in range(3):
        stopped.train_step()
    stopped.save(stopped.run.checkpoints / checkpoint_name(3))
    trainer("broken", resume=True).train()
    name = "checkpoints/step-00000006/model.safetensors"
    left, right = load_file(tmp_path / "whole" / name), load_file(tmp_path / "broken" / name)
    assert left.keys() == right.keys()
    assert all(torch.equal(tensor, right[key]) for key, tensor in left.items())


def test_codes_that_are_none_are_refused() -> None:
    with pytest.raises((UserError, ValueError), match=r"0\.\.15"):
        codec().decode_from_codebook_indices(torch.full((1, 4, 3), 16))


def test_it_does_not_stream_and_says_so_by_none() -> None:
    assert codec().stream_decoder() is None
