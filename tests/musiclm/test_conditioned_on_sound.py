"""Stages that are conditioned on the sound of a batch, without tokens on disk."""

from typing import Any

import pytest
import torch
from small_music import small_mulan, small_quantizer, tones

from madrigal import SemanticTransformer, SemanticTransformerWrapper


class Ear:
    """A tokenizer by its rate alone."""

    def __init__(self, rate: int) -> None:
        self.target_sample_hz = rate


def wrapper(conditioner: Any, rate: int) -> SemanticTransformerWrapper:
    torch.manual_seed(0)
    sizes = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "num_semantic_tokens": 8}
    stage = SemanticTransformer(**sizes, audio_text_condition=True, cond_dim=16, text_encoder="bytes").eval()
    return SemanticTransformerWrapper(transformer=stage, wav2vec=Ear(rate), audio_conditioner=conditioner)


@pytest.mark.parametrize("heard_at", [16_000, 8_000])
def test_padding_is_no_part_of_what_a_stage_is_conditioned_on(heard_at: int) -> None:
    """With another rate of the conditioner's, too."""
    made = wrapper(small_quantizer(small_mulan(sample_rate=heard_at)), 16_000)
    waves = tones(8)
    lengths = torch.full((8,), waves.shape[1])
    padded = torch.nn.functional.pad(waves, (0, 48_000))
    alone, mask = made.context({"audio": waves[:, None], "lengths": lengths})  # type: ignore[misc]
    among, _ = made.context({"audio": padded[:, None], "lengths": lengths})  # type: ignore[misc]
    torch.testing.assert_close(among, alone)
    assert bool(mask.all())
    blind, _ = made.context({"audio": padded[:, None]})  # type: ignore[misc]
    assert not torch.allclose(blind, alone, atol=1e-4)


def test_a_conditioner_that_knows_of_waves_alone_is_given_waves_alone() -> None:
    def heard(*, wavs: Any = None, texts: Any = None, namespace: str) -> torch.Tensor:
        return wavs.new_zeros(len(wavs), 1, 16)

    context = wrapper(heard, 16_000).context({"audio": tones(2)[:, None], "lengths": torch.tensor([16_000, 8_000])})
    assert context is not None
