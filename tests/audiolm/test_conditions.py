"""Conditions: they change what a stage says, guidance leans on them, and dropping one is having none."""

from typing import Any

import pytest
import torch
from stages import STAGES, row_of, semantic_stage, streams_of, wrapped

from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling

WAYS: dict[str, dict[str, Any]] = {
    "cross": {"has_condition": True, "text_encoder": "bytes"},
    "prefix": {"has_condition": True, "text_encoder": "bytes", "cond_as_self_attn_prefix": True},
}
NAMES = [(name, way) for name in STAGES for way in WAYS]


@pytest.mark.parametrize(("name", "way"), NAMES)
@pytest.mark.parametrize("given", ["text", "text_embeds"])
def test_AM1_guidance_changes_the_draws_however_the_condition_is_given(name: str, way: str, given: str) -> None:
    stage = STAGES[name](**WAYS[way])
    streams = [row_of(s, 0) for s in streams_of(stage)]
    condition = (
        {"text": ["a bell"]} if given == "text" else {"text_embeds": 3 * torch.randn(1, 3, stage.condition.cond_dim)}
    )
    context = stage.context(**condition)
    assert context is not None

    def logits(scale: float) -> torch.Tensor:
        decoding = wrapped(stage).decoding(
            [*streams[:-1], type(streams[-1])(streams[-1].codes[:, :2], torch.tensor([2]))],
            torch.tensor([4]),
            Sampling(cond_scale=scale),
            0,
            context,
        )
        return decoding.hidden

    with torch.no_grad():
        both = logits(3.0)
        assert both.shape[0] == 2
        assert not torch.allclose(both[0], both[1], atol=1e-4)
        assert torch.allclose(both[0], logits(1.0)[0], atol=1e-5)


@pytest.mark.parametrize(("name", "way"), NAMES)
def test_a_dropped_condition_is_no_condition(name: str, way: str) -> None:
    stage = STAGES[name](**WAYS[way])
    streams = streams_of(stage)
    tokens, mask = stage.context(text=["a bell", "rain", "a dog"])  # type: ignore[misc]
    dropped = stage.losses(streams, context=(tokens, torch.zeros_like(mask)), training=False)
    never = stage.losses(streams, training=False)
    with_it = stage.losses(streams, context=(tokens, mask), training=False)
    for section in never:
        torch.testing.assert_close(dropped[section], never[section])
        assert not torch.allclose(with_it[section], never[section], atol=1e-6)


@pytest.mark.parametrize(("name", "way"), NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_AM4_training_with_text_has_gradients(name: str, way: str, dtype: torch.dtype) -> None:
    stage = STAGES[name](**WAYS[way], cond_drop_prob=0.0).train()
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        losses = stage.losses(streams_of(stage), context=stage.context(text=["a", "b", "c"]), training=True)
    sum(losses.values()).backward()  # type: ignore[union-attr]
    gradients = [p.grad for p in stage.condition.parameters()]  # type: ignore[union-attr]
    assert any(g is not None and float(g.abs().sum()) > 0 for g in gradients)


def test_AM1_conditions_are_dropped_in_training_also_for_embeddings() -> None:
    stage = semantic_stage(**WAYS["cross"], cond_drop_prob=1.0, mask_prob=0.0)
    streams = streams_of(stage)
    context = stage.context(text_embeds=torch.randn(3, 2, stage.condition.cond_dim))  # type: ignore[union-attr]
    in_training = stage.losses(streams, context=context, training=True)["semantic"]
    torch.testing.assert_close(in_training, stage.losses(streams, training=False)["semantic"])


def test_AM13_stages_are_built_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network call at construction")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in STAGES:
        STAGES[name]()
        STAGES[name](has_condition=True)
        STAGES[name](has_condition=True, cond_dim=7)


def test_text_for_a_stage_without_condition_is_refused() -> None:
    with pytest.raises(UserError, match="without a condition"):
        semantic_stage().context(text=["rain"])


def test_an_embedding_of_another_width_is_refused() -> None:
    with pytest.raises(UserError, match="width 5"):
        semantic_stage(**WAYS["cross"]).context(text_embeds=torch.randn(1, 2, 5))
