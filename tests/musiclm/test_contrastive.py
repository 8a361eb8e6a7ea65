"""The losses: what they are, what chance is, what is no negative, and that a temperature stays in its bounds."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal import MultiLayerContrastiveLoss, SigmoidContrastiveLearning, SoftmaxContrastiveLearning
from madrigal.layers.contrastive import Contrast, Gathered

LOSSES = {
    "softmax": lambda **options: SoftmaxContrastiveLearning(**options),
    "decoupled": lambda **options: SoftmaxContrastiveLearning(decoupled_contrastive_learning=True, **options),
    "sigmoid": lambda **options: SigmoidContrastiveLearning(**options),
}


def latents(rows: int = 6, dim: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    audio, text = (F.normalize(torch.randn(rows, dim, generator=generator), dim=-1) for _ in range(2))
    return audio, text


def test_softmax_is_cross_entropy_both_ways() -> None:
    audio, text = latents()
    scores, right = 10 * audio @ text.T, torch.arange(6)
    wanted = (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)) / 2
    torch.testing.assert_close(SoftmaxContrastiveLearning(init_temp=10)(audio, text), wanted)


def test_decoupled_leaves_the_positive_out_of_the_sum() -> None:
    audio, text = latents()
    scores = 10 * audio @ text.T
    others = scores.masked_fill(torch.eye(6).bool(), float("-inf"))
    wanted = (-scores.diagonal() + (others.logsumexp(0) + others.logsumexp(1)) / 2).mean()
    torch.testing.assert_close(LOSSES["decoupled"](init_temp=10)(audio, text), wanted)


def test_sigmoid_asks_every_pair() -> None:
    audio, text = latents()
    scores, sign = 10 * audio @ text.T - 10, 2 * torch.eye(6) - 1
    wanted = -F.logsigmoid(sign * scores).sum() / 6
    torch.testing.assert_close(LOSSES["sigmoid"](init_temp=10, init_bias=-10)(audio, text), wanted)


@pytest.mark.parametrize(("name", "chance"), [("softmax", math.log(6)), ("decoupled", math.log(5))])
def test_chance_is_what_equal_embeddings_lose(name: str, chance: float) -> None:
    alike = F.normalize(torch.ones(6, 4), dim=-1)
    contest = LOSSES[name]().contest(alike, alike)
    assert float(contest.loss) == pytest.approx(chance, abs=1e-5)
    assert float(contest.chance) == pytest.approx(chance, abs=1e-5)


def test_chance_of_the_sigmoid_is_the_best_that_one_number_does() -> None:
    alike = F.normalize(torch.ones(6, 4), dim=-1)
    found = []
    for score in torch.linspace(-8, 4, 400).tolist():
        contest = SigmoidContrastiveLearning(init_temp=1, init_bias=score - 1).contest(alike, alike)
        found.append(float(contest.loss))
    assert min(found) == pytest.approx(float(contest.chance), abs=1e-3)


@pytest.mark.parametrize("name", LOSSES)
def test_equal_captions_are_no_negatives(name: str) -> None:
    audio, text = latents()
    text[3] = text[1]
    labels = torch.tensor([0, 1, 2, 1, 4, 5])
    loss = LOSSES[name]()
    with_labels = loss.contest(audio, text, labels=labels)
    without = loss.contest(audio, text)
    assert with_labels.loss < without.loss
    assert with_labels.chance < without.chance


@pytest.mark.parametrize("name", LOSSES)
def test_MU13_large_temperatures_overflow_nothing(name: str) -> None:
    """All scores are near 200, and exp(89) is too large for 32 bits; latents have 16."""
    audio, text = (F.normalize(1.0 + 0.01 * rows, dim=-1).half().requires_grad_() for rows in latents())
    loss = LOSSES[name](init_temp=200.0, max_temp=200.0)
    value = loss(audio, text)
    value.backward()
    assert bool(value.isfinite())
    for part in (loss.temperatures, audio, text):
        assert bool(part.grad.isfinite().all())


@pytest.mark.parametrize("name", LOSSES)
def test_MU13_the_temperature_is_clamped_and_comes_back(name: str) -> None:
    audio, text = latents()
    loss: Contrast = LOSSES[name](max_temp=20.0)
    with torch.no_grad():
        loss.temperatures.fill_(9.0)
    loss(audio, text).backward()
    assert float(loss.scale()) == pytest.approx(20.0)
    assert float(loss.temperatures) == pytest.approx(math.log(20.0))
    assert float(loss.temperatures.grad.abs()) > 0  # at its bound it can still learn


def test_a_row_without_negatives_has_no_gradient_but_a_finite_one() -> None:
    audio, text = (t.requires_grad_() for t in latents(2))
    loss = LOSSES["decoupled"]().contest(audio, text, labels=torch.tensor([7, 7])).loss
    loss.backward()
    assert float(loss) == 0.0
    assert bool(audio.grad.isfinite().all())


@pytest.mark.parametrize("name", LOSSES)
def test_MU6_gathered_rows_make_the_loss_of_all_rows(name: str) -> None:
    """Two processes of different sizes: the mean of their losses and gradients is that of one that has all rows."""
    audio, text = (t.requires_grad_() for t in latents(7))
    labels = torch.tensor([0, 1, 2, 3, 1, 5, 6])
    loss: Contrast = LOSSES[name]()
    whole = loss.contest(audio, text, labels=labels)
    whole_grads = torch.autograd.grad(whole.loss, (audio, text, loss.temperatures))
    shares = []
    for rows, first in ((slice(0, 3), 0), (slice(3, 7), 3)):
        packed = torch.stack((audio, text)).permute(1, 0, 2)[:, :, None]

        def gather(given: Tensor, packed: Tensor = packed, first: int = first) -> Gathered:
            return Gathered(labels if given.ndim == 1 else packed, first, 2)

        shares.append(loss.contest(audio[rows], text[rows], labels=labels[rows], gather=gather))
    torch.testing.assert_close((shares[0].loss + shares[1].loss) / 2, whole.loss)
    torch.testing.assert_close((shares[0].chance + shares[1].chance) / 2, whole.chance)
    grads = torch.autograd.grad((shares[0].loss + shares[1].loss) / 2, (audio, text, loss.temperatures))
    for found, wanted in zip(grads, whole_grads, strict=True):
        torch.testing.assert_close(found, wanted)


def test_layers_have_latents_of_their_own() -> None:
    generator = torch.Generator().manual_seed(0)
    audio, text = torch.randn(3, 6, 10, generator=generator), torch.randn(3, 6, 12, generator=generator)
    torch.manual_seed(0)
    loss = MultiLayerContrastiveLoss(audio_dim=10, text_dim=12, dim_latent=8, layers=3)
    value = loss(audio_layers=audio, text_layers=text)
    value.backward()
    each = [loss.contrast.contest(loss.audio(audio)[i : i + 1], loss.text(text)[i : i + 1]).loss for i in range(3)]
    torch.testing.assert_close(value.detach(), torch.stack(each).mean().detach())
    assert all(
        bool(p.grad.abs().sum() > 0) for p in loss.parameters() if p is not loss.audio.bias and p is not loss.text.bias
    )


@pytest.mark.parametrize("options", [{"decoupled_contrastive_learning": True}, {"sigmoid_contrastive_loss": True}])
def test_options_of_the_layers_loss_change_it(options: dict[str, bool]) -> None:
    generator = torch.Generator().manual_seed(0)
    audio, text = torch.randn(2, 6, 10, generator=generator), torch.randn(2, 6, 10, generator=generator)
    values = []
    for more in ({}, options):
        torch.manual_seed(0)
        loss = MultiLayerContrastiveLoss(audio_dim=10, text_dim=10, dim_latent=8, layers=2, **more)
        values.append(float(loss(audio_layers=audio, text_layers=text)))
    assert values[0] != values[1]
