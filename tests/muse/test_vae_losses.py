"""What a VQGAN is trained for: its terms, the adaptive weight, and a perceptual network that never learns."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from vqgan_toys import QUANTIZERS, fake_vgg_weights, pictures, tiny_vae

from madrigal.errors import UserError
from madrigal.muse.perceptual import PerceptualLoss, VGG16Features
from madrigal.muse.vae import VQGanVAE


def terms_of(vae: VQGanVAE, real: Tensor, *, adversarial: bool = True) -> dict[str, Tensor]:
    made, quantized = vae.autoencode(real)
    return vae.generator_terms(real, made, quantized.commitment, adversarial=adversarial).terms


def gradients(vae: VQGanVAE, loss: Tensor) -> dict[str, Tensor]:
    named = {n: p for n, p in vae.named_parameters() if n.startswith(("encoder.", "decoder."))}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), retain_graph=True), strict=True))


def test_terms_by_their_gradient_are_the_terms_themselves() -> None:
    """The way by which gradients go changes nothing about them, nor about the values."""
    vae, real = tiny_vae(adaptive_weight_max=1e9), pictures()
    made, quantized = vae.autoencode(real)
    judged = vae.generator_terms(real, made, quantized.commitment)
    logits, features = vae.discr(made)
    _, wanted = vae.discr(real)
    plain = {
        "recon": (made - real).abs().mean(),
        "perceptual": torch.stack(
            [(a - b.detach()).abs().mean() for a, b in zip(features, wanted, strict=True)]
        ).mean(),
        "adversarial": -logits.mean(),
    }
    last = vae.decoder.last.weight
    like, verdict = (
        torch.autograd.grad(loss, last, retain_graph=True)[0].norm()
        for loss in (plain["recon"] + plain["perceptual"], plain["adversarial"])
    )
    weight = judged.adaptive_weight
    assert weight is not None
    torch.testing.assert_close(weight, like / (verdict + 1e-6))
    plain["adversarial"] = plain["adversarial"] * weight.detach()
    torch.testing.assert_close({n: judged.terms[n].detach() for n in plain}, {n: t.detach() for n, t in plain.items()})
    total = sum(judged.terms[name] for name in plain)
    one, two = gradients(vae, total), gradients(vae, sum(plain.values()))
    for name in two:
        torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)


def test_the_adaptive_weight_is_clamped() -> None:
    vae, real = tiny_vae(adaptive_weight_max=0.01), pictures()
    made, quantized = vae.autoencode(real)
    assert float(vae.generator_terms(real, made, quantized.commitment).adaptive_weight) == pytest.approx(0.01)


def test_MS13_the_quantizers_own_loss_counts_without_a_gan() -> None:
    vae = tiny_vae(**QUANTIZERS["lfq"], levels=None, use_vgg_and_gan=False)
    terms = terms_of(vae, pictures())
    assert terms.keys() == {"recon", "commitment"}
    assert float(terms["commitment"].detach()) != 0
    whole = vae(pictures(), return_loss=True)
    torch.testing.assert_close(whole, terms["recon"] + terms["commitment"])


def test_MS5_a_discriminators_loss_without_penalty() -> None:
    vae = tiny_vae()
    with_penalty, without = (vae(pictures(), return_discr_loss=True, add_gradient_penalty=p) for p in (True, False))
    assert float(with_penalty) > float(without) > 0


def test_losses_are_the_hinge_or_cross_entropy() -> None:
    hinge, entropy = tiny_vae(), tiny_vae(use_hinge_loss=False)
    real, made = pictures(), pictures(seed=1)
    logits = hinge.discr(torch.cat((real, made)))[0]
    here, there = logits.chunk(2)
    torch.testing.assert_close(
        hinge.discriminator_terms(real, made)["discriminator"], F.relu(1 - here).mean() + F.relu(1 + there).mean()
    )
    torch.testing.assert_close(
        entropy.discriminator_terms(real, made)["discriminator"],
        F.binary_cross_entropy_with_logits(here, torch.ones_like(here))
        + F.binary_cross_entropy_with_logits(there, torch.zeros_like(there)),
    )
    assert float(terms_of(hinge, real)["adversarial"]) != float(terms_of(entropy, real)["adversarial"])


def test_l2_recon_loss_squares() -> None:
    real = pictures()
    first, second = (terms_of(tiny_vae(l2_recon_loss=is_l2), real)["recon"] for is_l2 in (False, True))
    assert float(second) < float(first)


def test_a_term_of_weight_zero_is_not_computed() -> None:
    vae = tiny_vae(loss_weights={"perceptual": 0, "adversarial": 0})
    assert terms_of(vae, pictures()).keys() == {"recon", "commitment"}


def test_no_gradient_flows_from_the_discriminators_loss_into_the_generator() -> None:
    vae = tiny_vae()
    vae(pictures(), return_discr_loss=True).backward()
    assert all(p.grad is None for n, p in vae.named_parameters() if not n.startswith("discriminators."))


class Dropping(nn.Module):
    """A network of a user's own, which drops out in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def test_MS7_the_perceptual_network_stays_in_eval_mode_and_gets_no_gradient() -> None:
    vae, real = tiny_vae(vgg=Dropping()), pictures()
    vae.train()
    assert vae.perceptual is not None
    assert not any(module.training for module in vae.perceptual.modules())
    assert float(terms_of(vae, real)["perceptual"]) == float(terms_of(vae, real)["perceptual"])
    vae(real, return_loss=True).backward()
    assert all(p.grad is None and not p.requires_grad for p in vae.perceptual.parameters())


def test_vgg_takes_files_of_its_layout_and_no_others(tmp_path: Path) -> None:
    weights = fake_vgg_weights()
    save_file(weights, tmp_path / "vgg.safetensors")
    lpips = {name.replace("features.", "net.slice1."): tensor for name, tensor in weights.items()}
    dims = (64, 128, 256, 512, 512)
    lpips |= {f"lin{n}.model.1.weight": torch.full((1, dim, 1, 1), 2.0) for n, dim in enumerate(dims)}
    torch.save(lpips, tmp_path / "lpips.pt")
    (tmp_path / "other.pt").write_bytes(b"nothing")
    real, made = pictures(1), pictures(1, seed=3)
    plain = PerceptualLoss(VGG16Features.load(tmp_path / "vgg.safetensors"))
    weighed = PerceptualLoss(VGG16Features.load(tmp_path / "lpips.pt"))
    assert float(plain(real, real)) == 0
    torch.testing.assert_close(weighed(made, real), 2 * plain(made, real))
    save_file({"features.0.weight": weights["features.0.weight"]}, tmp_path / "half.safetensors")
    for name, sentence in (
        ("other.pt", "other.pt"),
        ("half.safetensors", "does not hold the weights of a VGG16"),
        ("none.pt", "There is no file"),
    ):
        with pytest.raises(UserError, match=sentence):
            VGG16Features.load(tmp_path / name)


def test_MS7_pictures_are_normalised_as_imagenet_was() -> None:
    seen: list[Tensor] = []
    network = VGG16Features(fake_vgg_weights())
    network.layers["0"].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    network(torch.tensor([0.485, 0.456, 0.406])[None, :, None, None].expand(1, 3, 16, 16))
    torch.testing.assert_close(seen[0], torch.zeros(1, 3, 16, 16))


def test_no_pickle_is_opened(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UserError, match="holds more than tensors"):
        VGG16Features.load(tmp_path / "module.pt")
