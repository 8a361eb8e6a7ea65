"""VQGanVAE: pictures to tokens and back, in any shape, by every quantizer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vqgan_toys import QUANTIZERS, TINY, pictures, tiny_vae

import madrigal
from madrigal.errors import UserError
from madrigal.muse.vae import VQGanVAE


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_ids_decode_to_what_the_autoencoder_gives(kind: str) -> None:
    vae = VQGanVAE(**TINY, **QUANTIZERS[kind]).eval()
    real = pictures(2)
    ids = vae.encode(real)
    assert ids.shape == (2, 4, 4)
    assert ids.dtype == torch.long
    assert 0 <= ids.min() <= ids.max() < vae.codebook_size
    torch.testing.assert_close(vae.decode_from_ids(ids), vae(real).clamp(0, 1))


def test_MS23_pictures_may_have_any_aspect_ratio_that_tokens_fill() -> None:
    vae = tiny_vae()
    assert vae.encode(pictures(1, 16, 24)).shape == (1, 4, 6)
    assert vae.decode_from_ids(torch.zeros(1, 4, 6, dtype=torch.long)).shape == (1, 3, 16, 24)
    assert vae.get_encoded_fmap_size(16) == 4
    assert vae.get_encoded_fmap_size((16, 24)) == (4, 6)
    with pytest.raises(UserError, match=r"16 by 18 pixels cannot be cut into tokens of 4 by 4: resize it to multiples"):
        vae.encode(torch.zeros(1, 3, 16, 18))


def test_a_picture_alone_is_what_it_is_among_others() -> None:
    vae = tiny_vae()
    real = pictures(3)
    torch.testing.assert_close(vae(real)[1:2], vae(real[1:2]))
    torch.testing.assert_close(vae.discr(real)[0][1:2], vae.discr(real[1:2])[0])


def test_the_training_mode_changes_nothing() -> None:
    vae, real = tiny_vae(), pictures()
    before = {name: tensor.clone() for name, tensor in vae.state_dict().items()}
    assert torch.equal(vae.train()(real), vae.eval()(real))
    assert all(torch.equal(before[name], tensor) for name, tensor in vae.state_dict().items())


def test_MS20_pictures_from_ids_lie_between_black_and_white() -> None:
    vae = tiny_vae()
    with torch.no_grad():
        vae.decoder.last.weight.mul_(100)
    made = vae.decode_from_ids(torch.randint(0, 64, (2, 4, 4)))
    assert made.min() == 0
    assert made.max() == 1


def test_ids_that_are_not_its_own_are_refused() -> None:
    with pytest.raises(UserError, match="which has 64"):
        tiny_vae().decode_from_ids(torch.full((1, 4, 4), 64))
    with pytest.raises(UserError, match=r"\[batch, height, width\]"):
        tiny_vae().decode_from_ids(torch.zeros(1, 16, dtype=torch.long))
    with pytest.raises(UserError, match=r"\[batch, 3, height, width\]"):
        tiny_vae().encode(torch.zeros(1, 1, 16, 16))


def test_MS11_a_learned_codebook_can_be_used() -> None:
    vae = tiny_vae(**QUANTIZERS["vq"], levels=None)
    loss = vae(pictures(), return_loss=True)
    loss.backward()
    assert torch.isfinite(loss)


def test_MS12_options_of_the_codebook_arrive_under_both_names() -> None:
    ours = tiny_vae(quantizer="vq", codebook_size=16, levels=None, vq_kwargs={"factorised_dim": 4, "ema_decay": 0.7})
    theirs = VQGanVAE(
        **TINY, lookup_free_quantization=False, codebook_size=16, vq_codebook_dim=4, vq_kwargs={"decay": 0.7}
    )
    for vae in (ours, theirs):
        assert vae.quantizer.codebooks.vectors.shape[-1] == 4
        assert vae.quantizer.ema_decay == 0.7
    with pytest.raises(UserError, match="did you mean ema_decay"):
        tiny_vae(quantizer="vq", codebook_size=16, levels=None, vq_kwargs={"emadecay": 0.7})


def test_MS14_a_copy_for_use_leaves_the_original_as_it_is() -> None:
    vae = tiny_vae(vgg=nn.Conv2d(3, 4, 3)).train()
    copy = vae.copy_for_eval()
    assert len(copy.discriminators) == 0
    assert copy.perceptual is None
    assert not copy.training
    assert not any(p.requires_grad for p in copy.parameters())
    assert vae.training
    assert "patch" in vae.discriminators
    assert vae.perceptual is not None
    assert vae.decoder.last.weight.requires_grad
    assert torch.equal(copy.encode(pictures()), vae.encode(pictures()))


def test_MS14_a_copy_is_where_the_original_is_and_stays() -> None:
    with torch.device("meta"):  # a device that is not the cpu, wherever this runs
        vae = tiny_vae(vgg=nn.Conv2d(3, 4, 3))
    before = dict(vae.named_parameters())
    copy = vae.copy_for_eval()
    for model in (vae, copy):
        assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert all(tensor is before[name] for name, tensor in vae.named_parameters())


def test_MS2_what_save_writes_load_reads(tmp_path: Path) -> None:
    vae, other = tiny_vae(0), tiny_vae(1)
    vae.save(tmp_path / "vae")
    assert sorted(p.name for p in (tmp_path / "vae").iterdir()) == ["config.json", "model.safetensors"]
    other.load(tmp_path / "vae")
    again = VQGanVAE.from_pretrained(tmp_path / "vae", discriminators=False)
    for loaded in (other, again):
        assert torch.equal(loaded(pictures()), vae(pictures()))
    assert again.fingerprint == vae.fingerprint != tiny_vae(1).fingerprint
    assert len(again.discriminators) == 0
    with pytest.raises(UserError, match="do not fit"):
        tiny_vae(dim=16).load(tmp_path / "vae")


def test_it_is_public_and_has_the_older_keywords() -> None:
    vae = madrigal.VQGanVAE(dim=16, layers=2, codebook_size=256, lfq_kwargs={"diversity_gamma": 2.0})
    assert vae.config.quantizer == "lfq"
    assert vae.quantizer.diversity_gamma == 2.0
    assert vae.downsample_factor == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"levels": None}, "levels belong to quantizer=fsq"),
        ({"levels": 8}, "VQGanVAE: levels is 8; input should be a valid tuple"),
        ({"levels": [8, "a"]}, "VQGanVAE: levels.1 is 'a'; input should be a valid integer"),
        ({"codebook_size": 65}, "make 64 codes, not 65"),
        ({"dim": 6}, "does not divide the 6 channels"),
        ({"layer_mults": (1, 2, 4)}, "has 3 entries for 2 layers"),
        ({"first_conv_kernel_size": 4}, "must be odd"),
        ({"quantizer": "lfq", "levels": None, "codebook_size": 100}, "power of two"),
        ({"dimm": 8}, "did you mean dim"),
    ],
)
def test_a_mistaken_option_is_told(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tiny_vae(**options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dim", 16),
        ("layers", 3),
        ("layer_mults", (2, 3)),
        ("num_resnet_blocks", (1, 2)),
        ("resnet_groups", 2),
        ("first_conv_kernel_size", 3),
    ],
)
def test_every_option_of_the_convolutions_changes_something(option: str, value: Any) -> None:
    plain, other = tiny_vae(), tiny_vae(**{option: value})
    real = pictures(1)
    is_other_shape = plain.encode(real).shape != other.encode(real).shape
    assert is_other_shape or not torch.allclose(plain(real), other(real))
