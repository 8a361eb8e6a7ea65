"""Small models for the tests of decoding, with weights that are large enough for mistakes to show."""

from typing import Any

import torch
from torch import Tensor, nn

from madrigal.layers.sampling import Sampling
from madrigal.speartts.model import Encoded, TextToSemantic

SPEECH, TEXT = 12, 10
GREEDY = Sampling(temperature=0.0)


def small_model(seed: int = 0, sharpness: float = 2.0, **options: Any) -> TextToSemantic:
    """A model with an early exit after one of three layers; the larger its `sharpness`, the surer it is.

    Its tokens are small beside what its layers add: else the likeliest token would be the last one, again and again.
    """
    torch.manual_seed(seed)
    sizes = {"dim": 16, "source_depth": 1, "target_depth": 3, "heads": 2, "dim_head": 8, "target_kv_heads": 1}
    vocabularies = {"num_semantic_token_ids": SPEECH, "num_text_token_ids": TEXT}
    ways = {"target_early_exit_layer": 1, "cond_drop_prob": 0.1}
    model = TextToSemantic(**{**sizes, **vocabularies, **ways, **options}).eval()
    for name, parameter in model.named_parameters():
        is_norm, is_table = "norm" in name, name.startswith("tables")
        nn.init.normal_(parameter, mean=1.0 if is_norm else 0.0, std=0.1 / model.scale if is_table else 0.5)
    with torch.no_grad():
        for norm in (model.upper.norm, model.early_norm):
            if norm is not None:
                norm.weight.mul_(sharpness * model.scale)
    return model


def agreeing_model(seed: int = 0, **options: Any) -> TextToSemantic:
    """A model whose early exit is often right: the layers above it change little."""
    model = small_model(seed, **options)
    assert model.early_norm is not None
    assert model.early_project is not None
    with torch.no_grad():
        for name, weight in model.upper.layers.named_parameters():
            if name.endswith(("to_out.weight", "feed_forward.3.weight")):
                weight.mul_(0.2)
        model.early_norm.weight.copy_(model.upper.norm.weight)
        nn.init.eye_(model.early_project.weight)
    return model


def sources(rows: int, seed: int = 1, longest: int = 7) -> tuple[Tensor, Tensor]:
    """Text ids [rows, longest] of different lengths, padded with -1."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, TEXT, (rows, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (rows,), generator=generator)
    lengths[0] = longest
    return ids.masked_fill(torch.arange(longest) >= lengths[:, None], -1), lengths


def encoded_sources(model: TextToSemantic, rows: int, seed: int = 1) -> Encoded:
    with torch.no_grad():
        return model.encode("text", *sources(rows, seed))


def limits(rows: int, most: int) -> Tensor:
    return torch.full((rows,), most)


@torch.no_grad()
def whole_logits(model: TextToSemantic, encoded: Encoded, ids: Tensor, cond_scale: float = 1.0) -> Tensor:
    """Logits [batch, 1 + t, ids + 1] of targets [batch, t], by one pass without a cache."""

    def logits(seen: Encoded) -> Tensor:
        return model.logits("speech", model.decode_upper(model.decode_lower("speech", ids, seen), seen))

    with_it = logits(encoded)
    if cond_scale == 1.0:
        return with_it
    without = logits(encoded.without(torch.ones(len(ids), dtype=torch.bool)))
    return without + cond_scale * (with_it - without)


def uncached_greedy(model: TextToSemantic, encoded: Encoded, most: int, cond_scale: float = 1.0) -> list[int]:
    """What greedy decoding writes for one row, by whole passes."""
    written: list[int] = []
    while len(written) < most:
        ids = torch.tensor([written], dtype=torch.int64)
        token = int(whole_logits(model, encoded, ids, cond_scale)[0, -1].argmax())
        if token == model.end("speech"):
            break
        written.append(token)
    return written
