"""How the model learns: from clean speech around a span, judged by that span alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from voicebox_flows import DIM, HIDING, IDS, Blocks, features, ids, model, wrapper

from madrigal.errors import UserError
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper, Lesson


class Listening:
    """Notes what the model was given."""

    def __init__(self, flows: ConditionalFlowMatcherWrapper) -> None:
        self.heard: dict[str, Any] = {}
        flows.voicebox.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _: Any, given: Any, named: dict[str, Any]) -> None:
        self.heard = {"x": given[0], **named}


def test_VB1_the_context_is_the_masked_clean_speech() -> None:
    flows, x1, lengths = wrapper(), features(4, 12), torch.tensor([12, 9, 12, 5])
    listening = Listening(flows)
    torch.manual_seed(0)
    lesson = flows.lesson(x1, lengths)
    flows.judged(x1, lengths, ids(4, 12), lesson, training=True)
    given = listening.heard["context_mask"]
    assert torch.equal(listening.heard["context"][given], x1[given])
    assert not (given & lesson.made).any()
    assert torch.equal(given | lesson.made, torch.arange(12) < lengths[:, None])


def test_the_model_sees_a_point_of_the_way_and_is_asked_for_its_flow() -> None:
    for sigma in (0.0, 0.1):
        flows, x1 = ConditionalFlowMatcherWrapper(model(), sigma=sigma), features(2, 5)
        listening = Listening(flows)
        times, noise = torch.tensor([0.0, 0.75]), features(2, 5, 7)
        lesson = Lesson(times, noise, torch.ones(2, 5, dtype=torch.bool))
        outcome = flows.judged(x1, torch.tensor([5, 5]), None, lesson, training=False)
        at = times[:, None, None]
        torch.testing.assert_close(listening.heard["x"], (1 - (1 - sigma) * at) * noise + at * x1)
        given = dict(listening.heard)
        found = flows.voicebox(given.pop("x"), **given)
        wanted = (found - (x1 - (1 - sigma) * noise)).square().mean()
        torch.testing.assert_close(outcome.loss, wanted)
        assert outcome.frames == 10


def test_only_real_frames_of_the_span_are_judged() -> None:
    flows, x1, lengths = wrapper(), features(2, 8), torch.tensor([8, 5])
    lesson = Lesson(torch.tensor([0.3, 0.6]), features(2, 8, 3), torch.zeros(2, 8, dtype=torch.bool))
    lesson.made[:, 2:6] = True
    outcome = flows.judged(x1, lengths, None, lesson, training=False)
    assert outcome.frames == 7
    outside = x1.clone()
    outside[1, 5:] = 50.0
    torch.testing.assert_close(flows.judged(outside, lengths, None, lesson, training=False).loss, outcome.loss)


def test_VB15_padding_changes_no_loss() -> None:
    flows, lengths = wrapper(), torch.tensor([6, 4])
    lesson = Lesson(torch.tensor([0.3, 0.6]), features(2, 6, 3), torch.arange(6).expand(2, -1) > 1)
    plain = flows.judged(features(2, 6), lengths, ids(2, 6), lesson, training=False).loss

    def padded(x: Tensor, value: float = 0.0) -> Tensor:
        return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, 5), value=value)

    wide = Lesson(lesson.times, padded(lesson.noise), padded(lesson.made, True))
    loss = flows.judged(padded(features(2, 6)), lengths, padded(ids(2, 6), -1), wide, training=False).loss
    torch.testing.assert_close(loss, plain)


def test_VB6_a_loss_leaves_the_mode_alone() -> None:
    flows = wrapper(ff_dropout=0.5)
    for training in (True, False):
        flows.train(training)
        flows(features(2, 8), ids=ids(2, 8))
        assert flows.voicebox.training is training


def test_what_is_hidden_for_guidance_is_hidden_in_training_alone() -> None:
    flows, x1, lengths = (
        wrapper(**{**HIDING, "cond_drop_prob": 0.5, "ids_drop_prob": 0.5}),
        features(200, 6),
        torch.full((200,), 6),
    )
    torch.manual_seed(0)
    lesson, said = flows.lesson(x1, lengths), ids(200, 6)
    there = flows.conditions(x1, lengths, said, lesson, training=False)
    assert not there["drop_context"].any()
    assert torch.equal(there["ids"], said)
    hidden = flows.conditions(x1, lengths, said, lesson, training=True)
    assert torch.equal(hidden["drop_context"], hidden["drop_ids"])
    assert 70 < int(hidden["drop_ids"].sum()) < 130
    untold = hidden["ids"] == -1
    # Ids of what is given alone, so that a prompt needs no transcript and words are never lost.
    assert not (untold & lesson.made).any()
    rows = (~lesson.made).any(1)
    assert 0.3 < float(untold.any(1)[rows].float().mean()) < 0.7


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_VB11_p_drop_prob_is_the_share_of_rows_with_nothing_given(share: float) -> None:
    flows = wrapper(p_drop_prob=share, frac_lengths_mask=(0.5, 0.6))
    made = flows.lesson(features(20, 10), torch.full((20,), 10)).made
    assert bool(made.all(1).all()) is (share == 1.0)
    assert bool(made.all(1).any()) is (share == 1.0)


def test_waves_are_heard_by_the_features() -> None:
    flows, x1 = wrapper(Blocks()), features(2, 8)
    for lengths in (None, torch.tensor([8, 5])):
        torch.manual_seed(0)
        plain = flows(x1, ids=ids(2, 8), lengths=lengths)
        torch.manual_seed(0)
        samples = None if lengths is None else lengths * DIM + 2
        assert torch.equal(flows(x1.flatten(1), ids=ids(2, 8), lengths=samples), plain)
    with pytest.raises(UserError, match="give the wrapper features"):
        wrapper()(x1.flatten(1))
    with pytest.raises(UserError, match="neither waves"):
        flows(torch.zeros(2, 3, 4))


def test_a_mask_says_what_is_real_as_lengths_do() -> None:
    flows, lengths = wrapper(), torch.tensor([8, 5])
    torch.manual_seed(0)
    plain = flows(features(2, 8), lengths=lengths)
    torch.manual_seed(0)
    assert torch.equal(flows(features(2, 8), mask=torch.arange(8) < lengths[:, None]), plain)


def test_VB17_ids_of_other_rates_become_ids_of_frames() -> None:
    flows = wrapper()
    listening = Listening(flows)
    flows(features(1, 6), semantic_token_ids=torch.tensor([[3, 5, 7]]))
    assert listening.heard["ids"][0].tolist() == [3, 3, 5, 5, 7, 7]
    durations = torch.tensor([[1, 5]])
    flows(features(1, 6), phoneme_ids=torch.tensor([[2, 4]]), durations=durations)
    assert listening.heard["ids"][0].tolist() == [2, 4, 4, 4, 4, 4]
    with pytest.raises(UserError, match="give their durations"):
        flows(features(1, 6), phoneme_ids=torch.tensor([[2, 4]]))
    with pytest.raises(UserError, match="do not add up"):
        flows(features(1, 6), phoneme_ids=torch.tensor([[2, 4]]), durations=durations + 1)
    with pytest.raises(UserError, match="one of ids"):
        flows(features(1, 6), ids=ids(1, 6), semantic_token_ids=ids(1, 3))


def test_VB14_only_the_model_is_a_part_of_the_wrapper() -> None:
    tool = torch.nn.Linear(2, 2)
    tool.dim = DIM  # type: ignore[assignment]
    flows = ConditionalFlowMatcherWrapper(model(), tool, text_to_semantic=torch.nn.Linear(3, 3))
    assert {id(p) for p in flows.parameters()} == {id(p) for p in flows.voicebox.parameters()}
    assert all(name.startswith("voicebox.") for name in flows.state_dict())


def test_features_of_another_width_are_refused() -> None:
    with pytest.raises(UserError, match=f"build it with dim_in={DIM}"):
        ConditionalFlowMatcherWrapper(model(dim_in=DIM + 1), Blocks())


def test_older_words_mean_what_they_meant() -> None:
    made = model(audio_enc_dec=Blocks(), dim_in=None, attn_flash=True)
    assert made.config.dim_in == DIM
    assert ConditionalFlowMatcherWrapper(made).features is made.audio_enc_dec
    flows = ConditionalFlowMatcherWrapper(made, cond_drop_prob=0.2, torchdiffeq_ode_method="heun2", use_torchode=False)
    assert made.config.cond_drop_prob == 0.2
    assert flows.method == "heun"
    with pytest.raises(UserError, match="use_torchode=False only"):
        ConditionalFlowMatcherWrapper(made, use_torchode=True)
    with pytest.raises(UserError, match="no solver 'rk9'"):
        ConditionalFlowMatcherWrapper(made, torchdiffeq_ode_method="rk9")
    with pytest.raises(UserError, match="no option sigmoid"):
        ConditionalFlowMatcherWrapper(made, sigmoid=1)


def test_one_batch_can_be_learned_by_heart() -> None:
    torch.manual_seed(0)
    flows = ConditionalFlowMatcherWrapper(model(fresh=True, dim=32, depth=2))
    table = torch.randn(IDS, DIM)
    said = ids(8, 12)
    x1 = table[said]
    optimizer = torch.optim.Adam(flows.parameters(), lr=1e-2)
    losses = []
    for _ in range(100):
        loss = flows(x1, ids=said)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    made = flows.eval().sample(ids=said, steps=4)
    assert float((made - x1).square().mean()) < 0.3 * float(x1.square().mean())
