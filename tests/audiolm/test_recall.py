"""The memory of a prompt: where a state is like one of the prompt's, the prompt's own codes become likelier."""

from typing import Any

import pytest
import torch
from stages import (
    COARSE,
    CODES,
    SEMANTIC,
    STAGES,
    coarse_stage,
    fine_stage,
    row_of,
    semantic_stage,
    streams_of,
    wrapped,
)

from madrigal.audiolm.acoustic import AcousticStages, Prompt
from madrigal.audiolm.decoding import Decoding, Drawn
from madrigal.audiolm.draws import Draws
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.recall import PromptMemory
from madrigal.audiolm.stage import StageTransformer
from madrigal.data.tokens import PAD
from madrigal.layers.sampling import RowNoise, Sampling

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
    likeness = memory.likeness(7.0 * states[:, 1])
    mixed = memory.mixed(logits, likeness, 0, 5, 0.5).softmax(-1)
    assert mixed.sum().item() == pytest.approx(1.0)
    assert mixed[0, 5].item() == pytest.approx(1 / 6)
    assert mixed[0, 2].item() == pytest.approx(0.5 / 6 + 0.5 * 5 / 6, abs=1e-4)
    assert mixed[0, :2].tolist() == pytest.approx([0.5 / 6] * 2, abs=1e-4)
    assert torch.equal(memory.mixed(logits, likeness, 1, 5, 0.5), logits)


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


def test_under_guidance_it_is_the_state_with_the_condition_that_is_remembered() -> None:
    stage = semantic_stage(has_condition=True, cond_dim=8, text_encoder="bytes")
    prompt = row_of(streams_of(stage)[-1], 0)
    context = stage.context(text_embeds=torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(3)))
    states = []
    for scale in (1.0, 2.0):
        how = {"sampling": Sampling(recall=0.5, cond_scale=scale), "noise": RowNoise([0]), "context": context}
        memory = Decoding(stage, [prompt], torch.tensor([9]), **how).memory
        assert memory is not None
        states.append(memory.states)
    torch.testing.assert_close(*states)


class Codec:
    """What the acoustic stages ask of a codec; it sounds like its codes."""

    frame_rate, target_sample_hz, channels = 10.0, 160, 1

    def decode_from_codebook_indices(self, codes: torch.Tensor) -> torch.Tensor:
        return codes.float().mean(-1)[:, None]


def two_stages(window: float | None) -> AcousticStages:
    clock = {"unique_consecutive": False, "frames_per_semantic": 2.0, "semantic_along": True}
    coarse = coarse_stage(pattern="delay", window_seconds=window, **clock)
    fine = fine_stage(pattern="delay", window_seconds=window)
    return AcousticStages(wrapped(coarse), wrapped(fine), Codec(), None)  # type: ignore[arg-type]


def prompt_of(frames: int) -> Prompt:
    return Prompt([torch.zeros(frames // 2, dtype=torch.long)], [torch.arange(frames)[:, None].expand(-1, 5) % 2])


def said(stages: AcousticStages, prompt: Prompt, recall: float, frames: int = 60) -> torch.Tensor:
    semantic = [torch.randint(SEMANTIC, (frames // 2, 1), generator=torch.Generator().manual_seed(5))]
    draws = Draws([3], dict.fromkeys(STAGES, Sampling(recall=recall)))
    return stages.codes(semantic, prompt, draws, limits=[frames])[0]


@pytest.mark.parametrize("window", [None, 2.0, 1.5])
def test_in_every_window_it_is_the_prompt_that_is_recalled(window: float | None) -> None:
    stages = two_stages(window)
    assert set(said(stages, prompt_of(8), 1 - 1e-7).unique().tolist()) == {0, 1}
    assert torch.equal(said(stages, prompt_of(0), 0.5), said(stages, prompt_of(0), 0.0))


def test_a_stream_recalls_its_prompt_and_nothing_that_it_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = two_stages(2.0)
    memories = []
    monkeypatch.setattr(
        "madrigal.audiolm.recall.PromptMemory.of",
        classmethod(lambda cls, *given, of=PromptMemory.of.__func__: memories.append(of(cls, *given)) or memories[-1]),
    )
    semantic = torch.randint(SEMANTIC, (30, 1), generator=torch.Generator().manual_seed(5))
    draws = Draws([3], dict.fromkeys(STAGES, Sampling(recall=1 - 1e-7)))
    coarse = torch.cat(list(stages.coarse_pieces(semantic, prompt_of(8), draws, 7, seconds=None, limit=60)))
    assert len(memories) == 1
    assert set(coarse.unique().tolist()) == {0, 1}
    whole = said(stages, prompt_of(8), 1 - 1e-7)
    assert torch.equal(coarse, whole[8:, :COARSE])


def test_a_window_begins_with_a_whole_semantic_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a window of 15 frames is no number of tokens of two frames."""
    stages = two_stages(1.5)
    seen = []

    def decode(streams: list[Stream], frames: torch.Tensor, **how: Any) -> Drawn:
        seen.append((int(streams[0].codes[0, 0, 0]), int(streams[0].lengths), int(streams[1].lengths), int(frames)))
        return type(stages.coarse_stage).decode(stages.coarse_stage, streams, frames, **how)

    monkeypatch.setattr(stages.coarse_stage, "decode", decode)
    semantic = torch.arange(30)[:, None]
    assert len(stages.coarse([semantic % SEMANTIC], prompt_of(0), Draws([0]), seconds=None, limits=[60])[0]) == 60
    end = 0
    for first, tokens, known, frames in seen:
        start = end - known
        assert start % 2 == 0
        assert first == start // 2 % SEMANTIC
        assert tokens == -(-frames // 2)
        end = start + frames
    assert len(seen) > 3
