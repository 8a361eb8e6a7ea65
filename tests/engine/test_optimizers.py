"""Adam, AdamW, Lion and Muon, and where weight decay goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from toys import RegressionTrainer, assert_identical, make, whole_state

from madrigal import CoarseTransformer, MaskGitTransformer, TextToSemantic
from madrigal.engine.optimizers import (
    Lion,
    Muon,
    build_optimizer,
    decays,
    is_layer,
    load_optimizer_state,
    optimizer_state,
)
from madrigal.errors import UserError

LR, WD = 0.1, 0.5


def parameters() -> dict[str, nn.Parameter]:
    return {
        "weight": nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]])),
        "bias": nn.Parameter(torch.tensor([0.5, -1.0])),
        "scale": nn.Parameter(torch.tensor(2.0)),
    }


def with_gradients(named: dict[str, nn.Parameter], factor: float = 1.0) -> dict[str, nn.Parameter]:
    for parameter in named.values():
        parameter.grad = factor * torch.linspace(-1, 2, parameter.numel()).view_as(parameter)
    return named


@pytest.mark.parametrize(
    ("name", "wd", "kind"),
    [
        ("auto", 0.0, torch.optim.Adam),
        ("auto", WD, torch.optim.AdamW),
        ("adam", WD, torch.optim.Adam),
        ("adamw", 0.0, torch.optim.AdamW),
        ("lion", WD, Lion),
        ("muon", WD, Muon),
    ],
)
def test_the_name_picks_the_optimizer(name: str, wd: float, kind: type) -> None:
    assert type(build_optimizer(parameters(), name=name, lr=LR, wd=wd)) is kind


@pytest.mark.parametrize("name", ["adamw", "lion", "muon"])
def test_one_dimensional_parameters_never_decay(name: str) -> None:
    decayed, plain = with_gradients(parameters()), with_gradients(parameters())
    build_optimizer(decayed, name=name, lr=LR, wd=WD).step()
    build_optimizer(plain, name=name, lr=LR, wd=0.0).step()
    assert torch.equal(decayed["bias"], plain["bias"])
    assert torch.equal(decayed["scale"], plain["scale"])
    expected = plain["weight"] - LR * WD * parameters()["weight"]
    assert torch.allclose(decayed["weight"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("encoder.layers.0.weight", (4, 3, 7), True),
        ("critic.2.weight", (1, 8), True),
        ("embedding.weight", (10, 4), True),
        ("quantizer.narrow", (2, 1, 8, 4), True),
        ("discriminators.scale_2.layers.0.weight", (4, 1, 7), True),
        ("norm.to_scale.weight", (4, 4), True),
        ("encoder.layers.0.bias", (4,), False),
        ("complex.bias", (2, 4, 1, 1), False),
        ("encoder_film.scale", (2, 4), False),
        ("encoder_film.shift", (2, 4), False),
        ("attention.qk_scales", (8, 64), False),
        ("attention.query_norm.weight", (8, 64), False),
        ("norms.0.weight", (3, 4), False),
        ("start", (1, 1, 4), False),
        ("layer.parametrizations.weight.original0", (4, 1, 1), False),
        ("temperature", (), False),
    ],
)
def test_what_decays_is_decided_by_role_and_not_by_shape(name: str, shape: tuple[int, ...], expected: bool) -> None:
    parameter = nn.Parameter(torch.ones(shape))
    assert decays(name, parameter) is expected
    parameter.grad = torch.zeros(shape)
    build_optimizer({name: parameter}, name="adamw", lr=LR, wd=WD).step()
    assert torch.equal(parameter, torch.full(shape, 1 - LR * WD if expected else 1.0))


def test_adam_is_what_the_paper_says() -> None:
    named = with_gradients(parameters())
    before = {name: p.detach().clone() for name, p in named.items()}
    build_optimizer(named, name="adam", lr=LR, betas=(0.9, 0.99)).step()
    for name, parameter in named.items():
        # After one step the corrected moments are the gradient and its square.
        gradient = parameter.grad
        expected = before[name] - LR * gradient / (gradient.abs() + 1e-8)
        assert torch.allclose(parameter, expected, atol=1e-6)


def test_lion_is_what_a_hand_computes() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, -1.0]]))
    optimizer = build_optimizer({"weight": weight}, name="lion", lr=LR, wd=WD, betas=(0.9, 0.5))
    weight.grad = torch.tensor([[4.0, -2.0]])
    optimizer.step()
    # decay to 0.95 of it, then 0.1 against the sign of 0.1 * gradient; momentum is half of the gradient
    assert torch.allclose(weight, torch.tensor([[0.85, -0.85]]))
    assert torch.equal(optimizer.state[weight]["exp_avg"], torch.tensor([[2.0, -1.0]]))
    weight.grad = torch.tensor([[-10.0, 100.0]])
    optimizer.step()
    # 0.9 * 2 - 0.1 * 10 is positive still, -0.9 * 1 + 0.1 * 100 as well
    assert torch.allclose(weight, torch.tensor([[0.85 * 0.95 - 0.1, -0.85 * 0.95 - 0.1]]))
    assert torch.equal(optimizer.state[weight]["exp_avg"], torch.tensor([[-4.0, 49.5]]))


def test_lion_leaves_a_parameter_without_gradient_alone() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    build_optimizer({"weight": weight}, name="lion", lr=LR, wd=WD).step()
    assert torch.equal(weight, torch.ones(2, 2))


def test_muon_makes_the_steps_of_layers_orthogonal_and_leaves_all_else_to_adamw() -> None:
    shapes = {
        "layers.0.to_out.weight": (6, 24),
        "tables.speech.weight": (9, 6),
        "to_out.weight": (9, 6),
        "embedding.weight": (9, 6),
        "heads.0.weight": (9, 6),
        "layers.0.to_out.bias": (6,),
    }
    chance = torch.Generator().manual_seed(0)
    stepped = {}
    for name in ("muon", "adamw"):
        named = {key: nn.Parameter(torch.zeros(shape)) for key, shape in shapes.items()}
        for key, parameter in named.items():
            parameter.grad = torch.randn(shapes[key], generator=chance.manual_seed(len(key)))
        build_optimizer(named, name=name, lr=LR).step()
        stepped[name] = named
    step = -stepped["muon"]["layers.0.to_out.weight"].detach()
    # All directions of the gradient weigh about the same, and the whole is as long as a step of AdamW usually is.
    lengths = torch.linalg.svdvals(step) / (0.2 * LR * 24**0.5)
    assert lengths.min() > 0.6
    assert lengths.max() < 1.4
    others = [key for key in shapes if key != "layers.0.to_out.weight"]
    assert all(torch.equal(stepped["muon"][key], stepped["adamw"][key]) for key in others)
    matrices = [stepped[name]["layers.0.to_out.weight"] for name in stepped]
    assert not torch.equal(*matrices)


SMALL = {"dim": 16, "heads": 2, "dim_head": 8}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (TextToSemantic, {"source_depth": 1, "target_depth": 2, "num_text_token_ids": 9, "num_semantic_token_ids": 9}),
        (MaskGitTransformer, {"num_tokens": 9, "seq_len": 16, "depth": 1, "num_classes": 3, "text_encoder": "classes"}),
        (CoarseTransformer, {"num_semantic_tokens": 9, "codebook_size": 8, "num_coarse_quantizers": 2, "depth": 1}),
    ],
)
def test_no_table_and_no_head_is_taken_for_a_layer(kind: Any, options: dict[str, Any]) -> None:
    built = kind(**SMALL, **options)
    taken = {name.removesuffix(".weight") for name, p in built.named_parameters() if is_layer(name, p)}
    assert taken
    assert not any(isinstance(built.get_submodule(name), nn.Embedding) for name in taken)
    assert all(".layers." in name for name in taken)


@pytest.mark.parametrize("name", ["adam", "adamw", "lion", "muon"])
def test_the_state_goes_out_by_name_and_comes_back(name: str) -> None:
    one = with_gradients(parameters())
    first = build_optimizer(one, name=name, lr=LR, wd=WD)
    first.step()
    state = optimizer_state(first, one)
    assert {key.partition("/")[0] for key in state} == set(one)
    other = {n: nn.Parameter(one[n].detach().clone()) for n in reversed(one)}
    second = build_optimizer(other, name=name, lr=LR, wd=WD)
    load_optimizer_state(second, other, state)
    for named, optimizer in ((one, first), (other, second)):
        with_gradients(named, -3.0)
        optimizer.step()
    assert all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("name", ["adam", "adamw", "lion", "muon"])
def test_every_optimizer_learns_and_resumes(tmp_path: Path, name: str) -> None:
    lr = 0.2 if name == "muon" else 4e-2  # its steps are as long as Adam's late ones, a fifth of its first
    options = {"optimizer": name, "wd": 1e-3, "lr": lr, "num_train_steps": 40, "batch_size": 8}
    trainer = make(RegressionTrainer, tmp_path / "a", **options)
    losses = []
    for _ in range(40):
        losses.append(trainer.train_step()["loss"])
        if trainer.step == 20:
            trainer.save(tmp_path / "middle")
    assert losses[-1] < 0.6 * losses[0]
    resumed = make(RegressionTrainer, tmp_path / "b", **options)
    resumed.load(tmp_path / "middle")
    assert [resumed.train_step()["loss"] for _ in range(20)] == losses[20:]
    assert_identical(whole_state(resumed), whole_state(trainer))


def test_another_optimizers_moments_are_refused_in_a_sentence(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path / "a", optimizer="lion")
    trainer.train_step()
    trainer.save(tmp_path / "lion")
    other = make(RegressionTrainer, tmp_path / "b", optimizer="adam")
    with pytest.raises(UserError, match=r"trained with lion, not with adam: set plan\.optimizer"):
        other.load(tmp_path / "lion")
    other.load(tmp_path / "lion", restore_optimizer=False)
    other.train_step()
