"""The memory of a prompt: where a state is like one of the prompt's, the prompt's own codes become likelier."""

import pytest
import torch
from stages import COARSE, CODES, STAGES, coarse_stage, row_of, semantic_stage, streams_of, wrapped

from madrigal.audiolm.memory import PromptMemory
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.stage import StageTransformer
from madrigal.data.tokens import PAD
from madrigal.layers.sampling import Sampling

WHOLE = Sampling(recall=0.999)


def drawn(stage: StageTransformer, sampling: Sampling, prompt: int, lengths: tuple[int, ...] = (12,)) -> torch.Tensor:
    streams = streams_of(stage, lengths)
    known = Stream(streams[-1].codes[:, :prompt], torch.full((len(lengths),), prompt))
    return (
        wrapped(stage)
        .decode(
            [*streams[:-1], known],
            torch.tensor(lengths),
            sampling=sampling,
            seeds=list(range(len(lengths))),
            context=None,
            may_end=False,
        )
        .codes
    )


def test_what_followed_a_like_state_is_remembered_and_an_end_stays_as_likely() -> None:
    states = torch.eye(3)[None]
    memory = PromptMemory(states, {0: torch.tensor([[4, 2, PAD]])})
    logits = torch.zeros(1, 6)  # five codes and an end
    mixed = memory.mixed(logits, 7.0 * states[:, 1], 0, 5, 0.5).softmax(-1)
    assert mixed.sum().item() == pytest.approx(1.0)
    assert mixed[0, 5].item() == pytest.approx(1 / 6)
    assert mixed[0, 2].item() == pytest.approx(0.5 / 6 + 0.5 * 5 / 6, abs=1e-4)
    assert mixed[0, :2].tolist() == pytest.approx([0.5 / 6] * 2, abs=1e-4)
    assert torch.equal(memory.mixed(logits, states[:, 1], 1, 5, 0.5), logits)


@pytest.mark.parametrize("pattern", ["flatten", "delay"])
def test_with_all_recall_only_codes_of_the_prompt_are_drawn(pattern: str) -> None:
    stage = coarse_stage(pattern=pattern, unique_consecutive=False, frames_per_semantic=1.0)
    codes = drawn(stage, WHOLE, prompt=4)
    for codebook in range(COARSE):
        known, new = set(codes[0, :4, codebook].tolist()), set(codes[0, 4:, codebook].tolist())
        assert new <= known < set(range(CODES))
    assert any(
        set(drawn(stage, Sampling(), prompt=4)[0, 4:, k].tolist()) - set(codes[0, :4, k].tolist())
        for k in range(COARSE)
    )


@pytest.mark.parametrize("name", STAGES)
def test_recall_changes_what_is_drawn_and_without_a_prompt_nothing(name: str) -> None:
    stage = STAGES[name]()
    some = Sampling(recall=0.5)
    assert not torch.equal(drawn(stage, some, prompt=6), drawn(stage, Sampling(), prompt=6))
    assert torch.equal(drawn(stage, some, prompt=0), drawn(stage, Sampling(), prompt=0))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_AM7_AM8_a_row_among_others_remembers_its_own_prompt_alone(scale: float) -> None:
    stage = semantic_stage(has_condition=True, cond_dim=8, text_encoder="bytes")
    streams, prompts = streams_of(stage), (5, 2, 0)
    prompt = Stream(streams[-1].codes[:, :5], torch.tensor(prompts))
    context = stage.context(text_embeds=torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(3)))
    assert context is not None
    sampling, limits = Sampling(recall=0.6, cond_scale=scale), torch.tensor([9, 8, 7])
    together = wrapped(stage).decode(
        [prompt], limits, sampling=sampling, seeds=[7, 8, 9], context=context, may_end=True
    )
    for row in range(3):
        alone = wrapped(stage).decode(
            [row_of(prompt, row)],
            limits[row : row + 1],
            sampling=sampling,
            seeds=[7 + row],
            context=(context[0][row : row + 1], context[1][row : row + 1]),
            may_end=True,
        )
        assert torch.equal(together.rows()[row], alone.rows()[0])
