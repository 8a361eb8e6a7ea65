"""What a VQGAN and its discriminator are trained for: named terms, weighed by `config.loss_weights`.

The generator's terms are differentiated down to the picture that was made, each once. From there on a term is known
by its gradient: so the adaptive weight, which compares two of them at the decoder's last layer, costs next to nothing.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers.gan_losses import Terms, Valid, feature_distance

if TYPE_CHECKING:
    from madrigal.muse.vae import VQGanVAE


class Judged(NamedTuple):
    """The generator's terms, and the adaptive weight that is already in the adversarial one."""

    terms: Terms
    adaptive_weight: Tensor | None = None


def generator_terms(
    vae: "VQGanVAE", real: Tensor, made: Tensor, commitment: Tensor, *, adversarial: bool = True
) -> Judged:
    """The terms for pictures [batch, channels, height, width] and what was made of them.

    With `adversarial` the discriminator is asked as well: `adversarial` is its verdict, and `perceptual` the distance
    of its features where no network was given for that.
    """
    made = made.float()
    learns = torch.is_grad_enabled() and made.requires_grad
    with torch.enable_grad() if learns else torch.no_grad():
        seen = made.detach().requires_grad_(learns)
        values = _values(vae, real, seen, adversarial=adversarial)
    if not learns:
        return Judged({**values, "commitment": commitment})
    gradients = {name: torch.autograd.grad(value, seen, retain_graph=True)[0] for name, value in values.items()}
    weight = None
    if "adversarial" in values:
        weights = vae.config.loss_weights
        likeness = sum((weights[n] * g for n, g in gradients.items() if n != "adversarial"), torch.zeros_like(made))
        weight = adaptive_weight(vae, made, likeness, gradients["adversarial"])
        values["adversarial"] = values["adversarial"] * weight
        gradients["adversarial"] = gradients["adversarial"] * weight
    terms = {name: _by_gradient(made, values[name], gradients[name]) for name in values}
    return Judged({**terms, "commitment": commitment}, weight)


def adaptive_weight(vae: "VQGanVAE", made: Tensor, likeness: Tensor, adversarial: Tensor) -> Tensor:
    """How much the discriminator's verdict counts, from the gradients of both towards the picture that was made.

    Esser et al. (2021), equation 7: as hard as likeness pulls at the decoder's last layer, so hard may it pull.
    """
    last = vae.decoder.last.weight
    norms = [
        torch.autograd.grad(made, last, gradient, retain_graph=True)[0].norm() for gradient in (likeness, adversarial)
    ]
    return (norms[0] / (norms[1] + 1e-6)).clamp(0.0, vae.config.adaptive_weight_max)


def _values(vae: "VQGanVAE", real: Tensor, seen: Tensor, *, adversarial: bool) -> Terms:
    """The terms of weight above zero, but for the quantizer's own."""
    config, valid = vae.config, Valid()
    weights = config.loss_weights
    terms: Terms = {}
    if weights["recon"]:
        terms["recon"] = F.mse_loss(seen, real) if config.l2_recon_loss else F.l1_loss(seen, real)
    if vae.perceptual is not None and weights["perceptual"]:
        terms["perceptual"] = vae.perceptual(seen, real)
    if not adversarial or not len(vae.discriminators):
        return terms
    by_features = vae.perceptual is None and weights["perceptual"] > 0
    if not (by_features or weights["adversarial"]):
        return terms
    logits, features = vae.discr(seen)
    if by_features:
        with torch.no_grad():
            _, wanted = vae.discr(real)
        terms["perceptual"] = feature_distance(features, wanted, valid)
    if weights["adversarial"]:
        terms["adversarial"] = -logits.mean() if config.use_hinge_loss else F.softplus(-logits).mean()
    return terms


def _by_gradient(made: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """A term of this value whose gradient towards `made` is this one."""
    return value.detach() + ((made - made.detach()) * gradient).sum()
