"""A codec of log-mels: codes without phase, for language models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import on_two_ranks
from mel_codecs import codec, recorded_tones, tones, train, train_recordings
from safetensors.torch import load_file

import madrigal
from madrigal.data.tokens import PAD
from madrigal.engine.checkpoint import checkpoint_name
from madrigal.errors import UserError
from madrigal.tokenizers.loading import load_codec
from madrigal.tokenizers.mel_codec import MelCodec
from madrigal.tokenizers.mel_codec_trainer import MelCodecTrainer
from madrigal.verbs.systems import load_recipe

HOP = 320


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> MelCodecTrainer:
    return train(tmp_path_factory.mktemp("mel-codec"), num_train_steps=300)


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
        assert model.decode_from_codebook_indices(codes[..., :count]).shape == waves.shape
        # The frames that the sound is made of: Griffin-Lim adds as much to each of them.
        made = model.frames_of(model.get_emb_from_indices(codes[..., :count]))
        distances.append(float((made - wanted).abs().mean().detach()))
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


def test_rows_of_several_lengths_are_learned_as_alone(tmp_path: Path) -> None:
    made = train(tmp_path, num_train_steps=1)
    model, waves = made.model.eval(), tones(2)
    torch.nn.init.normal_(model.encoder.blocks[0].contract.weight)  # type: ignore[union-attr,arg-type]
    padded = torch.cat((waves[1:, :, :3333], torch.zeros(1, 1, 8000 - 3333)), dim=-1)
    frames, mask = made._frames({"audio": torch.cat((waves[:1], padded)), "lengths": torch.tensor([8000, 3333])})
    alone, whole = made._frames({"audio": waves[1:, :, :3333], "lengths": torch.tensor([3333])})
    assert whole.all()
    torch.testing.assert_close(model.latents(frames, mask)[1, :11], model.latents(alone)[0], rtol=1e-4, atol=1e-5)
    together, single = model.autoencode(frames, mask=mask)[0], model.autoencode(alone, mask=whole)[0]
    torch.testing.assert_close(together[1, :11], single[0], rtol=1e-4, atol=1e-4)


def test_samples_are_coded_as_alone(trained: MelCodecTrainer) -> None:
    waves = tones(2)
    padded = torch.cat((waves[1:, :, :3333], torch.zeros(1, 1, 8000 - 3333)), dim=-1)
    batch = {"audio": torch.cat((waves[:1], padded)), "lengths": torch.tensor([8000, 3333])}
    model = trained.model.eval()
    sample = trained.sample(batch)[1]
    alone = model.decode_from_codebook_indices(model.tokenize(waves[1:, :, :3333]))[0, :, :3333]
    assert torch.equal(sample["reconstruction"].wave, alone)  # type: ignore[union-attr]


def test_two_ranks_are_one_with_twice_the_accumulation(tmp_path: Path) -> None:
    folder = recorded_tones(tmp_path / "recordings")
    said = on_two_ranks(Path(__file__).parent / "mel_codecs.py", folder, tmp_path / "two")
    train_recordings(folder, tmp_path / "one", 2)
    first, second = (load_file(tmp_path / "two" / f"rank-{rank}.safetensors") for rank in (0, 1))
    alone = load_file(tmp_path / "one/rank-0.safetensors")
    assert first.keys() == second.keys() == alone.keys()
    for key in first:
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], alone[key], atol=1e-5, rtol=1e-4)
    assert said.count(" files, ") == 1, said  # what was found is told once, not once a rank


def test_a_kernel_without_a_middle_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="kernel_size is 4; give an odd number"):
        codec(kernel_size=4)


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


@pytest.mark.parametrize("sizes", [(1, 7, 130, 62), (200,), (90, 110)])
@torch.no_grad()
def test_streamed_is_whole(sizes: tuple[int, ...]) -> None:
    """Wherever the codes are cut; and a decoder that was emptied begins anew."""
    made = codec()
    codes = torch.randint(0, 16, (2, sum(sizes), 3), generator=torch.Generator().manual_seed(0))
    whole = made.decode_from_codebook_indices(codes)
    decoder = made.stream_decoder()
    assert sum(sizes) > decoder.reach
    for _ in range(2):
        pieces = [decoder.push(piece) for piece in codes.split(sizes, dim=1)]
        said = sum(piece.shape[-1] for piece in pieces)
        assert said == (sum(sizes) - decoder.reach) * made.config.hop
        torch.testing.assert_close(torch.cat([*pieces, decoder.flush()], -1), whole, atol=1e-4, rtol=1e-3)
    assert decoder.flush().shape[-1] == 0


@torch.no_grad()
def test_the_shipped_codec_gives_tones_back() -> None:
    made = load_codec("mels-16k")
    wave = tones(4, 0.6)
    codes = made.tokenize(wave)
    assert codes.shape == (4, 30, 8)
    errors = [
        float((made.log_mels(made.decode_from_codebook_indices(codes[..., :kept])) - made.log_mels(wave)).abs().mean())
        for kept in (1, 4, 8)
    ]
    assert errors == sorted(errors, reverse=True)


def test_shipped_weights_are_small_and_have_a_card() -> None:
    folders = [folder for folder in (Path(madrigal.__file__).parent / "pretrained").iterdir() if folder.is_dir()]
    sizes = {folder.name: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}
    assert {"speech-16k", "mels-16k"} <= set(sizes)
    assert max(sizes.values()) < 40e6
    assert sum(sizes.values()) < 150e6
    for folder in folders:
        card = (folder / "README.md").read_text()
        assert all(word in card for word in ("**Trained by**", "**Trained on**", "licence", "**Not for**"))
