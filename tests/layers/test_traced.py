"""Layers that are traced for a compiler take other ways in places, and come to the same, gradients included."""

from typing import Any

import pytest
import torch
from small_transformers import DIM, DIM_CONTEXT, mask_of, small

from madrigal.layers import blocks

OPTIONS: dict[str, dict[str, Any]] = {
    "turned": {"qk_norm": True, "causal": False},
    "unturned": {"qk_norm": True, "causal": False, "positions": "none"},
    "causal": {"value_residual": True, "kv_heads": 2},
    "context": {"cross_attend": True},
    "by distance": {"positions": "relative"},
}


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_traced_layers_have_the_same_gradients(name: str, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", 1)  # sixteen queries a block, so that there are several
    torch._dynamo.reset()
    model = small(**OPTIONS[name]).double().train()
    x = torch.randn(2, 20, DIM, dtype=torch.float64, requires_grad=True)
    given = {"mask": mask_of("1" * 20, "1" * 17 + "...")} if padded else {}
    if name == "context":
        given["context"] = torch.randn(2, 3, DIM_CONTEXT, dtype=torch.float64)
    inputs = [x, *model.parameters()]

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(model(x, **given).square().sum(), inputs)

    plain = gradients()
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(gradients(), plain)
