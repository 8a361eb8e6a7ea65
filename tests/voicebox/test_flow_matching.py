"""How the model learns: from clean speech around a span, judged by that span alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from voicebox_flows import DIM, HIDING, IDS, Blocks, Ears, Speaker, features, ids, model, wrapper

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
    """Not the noisy point, and nothing of the span: what reaches the layer that hears the context."""
    flows, x1, lengths, seen = wrapper(), features(4, 12), torch.tensor([12, 9, 12, 5]), []
    flows.voicebox.from_context.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    torch.manual_seed(0)
    lesson = flows.lesson(x1, lengths)
    flows.judged(x1, lengths, ids(4, 12), lesson, training=True)
    given = (torch.arange(12) < lengths[:, None]) & ~lesson.made
    assert given.any()
    assert torch.equal(seen[0], torch.where(given[..., None], x1, 0.0))


def test_the_model_sees_a_point_of_the_way_and_is_asked_for_its_flow() -> None:
    flows, x1 = wrapper(), features(2, 5)
    listening = Listening(flows)
    times, noise = torch.tensor([0.0, 0.75]), features(2, 5, 7)
    lesson = Lesson(times, noise, torch.ones(2, 5, dtype=torch.bool))
    outcome = flows.judged(x1, torch.tensor([5, 5]), None, lesson, training=False)
    at = times[:, None, None]
    torch.testing.assert_close(listening.heard["x"], (1 - at) * noise + at * x1)
    given = dict(listening.heard)
    found = flows.voicebox(given.pop("x"), **given)
    torch.testing.assert_close(outcome.loss, (found - (x1 - noise)).square().mean())
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


def hidden_of(**options: float) -> tuple[dict[str, Any], Tensor, Tensor]:
    """What 400 rows are told in training, which of their frames are to be made, and their ids."""
    flows = wrapper(**{**HIDING, "cond_drop_prob": 0.0, "ids_drop_prob": 0.0, "text_drop_prob": 0.0, **options})
    x1, lengths, said = features(400, 6), torch.full((400,), 6), ids(400, 6)
    torch.manual_seed(0)
    lesson = flows.lesson(x1, lengths)
    there = flows.conditions(x1, lengths, said, lesson, training=False)
    assert torch.equal(there["ids"], said)  # in training alone
    assert not there["drop_context"].any()
    return flows.conditions(x1, lengths, said, lesson, training=True), lesson.made, said


def test_rows_without_any_condition_are_for_guidance() -> None:
    hidden, _, said = hidden_of(cond_drop_prob=0.5)
    assert torch.equal(hidden["drop_context"], hidden["drop_ids"])
    assert 150 < int(hidden["drop_ids"].sum()) < 250
    assert torch.equal(hidden["ids"], said)


def test_rows_whose_given_frames_have_no_ids_are_prompts_without_a_transcript() -> None:
    hidden, made, said = hidden_of(ids_drop_prob=0.5)
    unknown = hidden["ids"] == -1
    assert not (unknown & made).any()  # words are never lost
    assert torch.equal(hidden["ids"][~unknown], said[~unknown])
    has_context = hidden["context_mask"].any(1)
    assert 0.4 < float(unknown.any(1)[has_context].float().mean()) < 0.6


def test_rows_with_frames_around_a_span_and_no_ids_are_holes_without_a_text() -> None:
    hidden, made, said = hidden_of(text_drop_prob=0.5)
    wordless = (hidden["ids"] == -1).all(1)
    has_context = hidden["context_mask"].any(1)
    assert 0.4 < float(wordless[has_context].float().mean()) < 0.6
    assert not hidden["drop_context"].any()  # the frames around it stay
    assert (made & (hidden["ids"] == -1)).any()
    # All or nothing, and a row without context keeps its text: else there would be nothing to go by.
    assert torch.equal(hidden["ids"][~wordless], said[~wordless])
    assert not wordless[~has_context].any()


def test_a_hole_without_a_text_goes_on_from_what_is_around_it() -> None:
    """Every row is one sound: known by its ids, or else by the frames around the span."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"p_drop_prob": 0.1, "frac_lengths_mask": (0.4, 0.7), "text_drop_prob": 0.4}
    flows = ConditionalFlowMatcherWrapper(model(fresh=True, dim=32, **options))
    said = torch.arange(IDS).repeat(3)[:, None].expand(-1, 10)
    x1 = (1.5 * torch.randn(IDS, DIM))[said]
    optimizer = torch.optim.Adam(flows.parameters(), lr=1e-2)
    flows.train()
    for _ in range(150):
        loss = flows(x1, ids=said)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hole = torch.zeros(len(x1), 10, dtype=torch.bool)
    hole[:, 3:8] = True
    made = flows.eval().sample(cond=x1, cond_mask=hole, ids=torch.full_like(said, -1), steps=4)
    assert float((made - x1)[hole].square().mean()) < 0.2 * float(x1.square().mean())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_VB11_p_drop_prob_is_the_share_of_rows_with_nothing_given(share: float) -> None:
    flows = wrapper(p_drop_prob=share, frac_lengths_mask=(0.5, 0.6))
    made = flows.lesson(features(20, 10), torch.full((20,), 10)).made
    assert bool(made.all(1).all()) is (share == 1.0)
    assert bool(made.all(1).any()) is (share == 1.0)


def test_waves_are_heard_by_the_features() -> None:
    flows, x1 = wrapper(Blocks()), features(2, 8)
    torch.manual_seed(0)
    plain = flows(x1, ids=ids(2, 8))
    torch.manual_seed(0)
    twice = flows(x1.flatten(1).repeat_interleave(2, 1), ids=ids(2, 8), input_sampling_rate=2 * Blocks.sample_rate)
    assert twice.shape == plain.shape
    for lengths in (None, torch.tensor([8, 5])):
        torch.manual_seed(0)
        plain = flows(x1, ids=ids(2, 8), lengths=lengths)
        torch.manual_seed(0)
        samples = None if lengths is None else lengths * DIM + 2
        assert torch.equal(flows(x1.flatten(1), ids=ids(2, 8), lengths=samples), plain)
    with pytest.raises(UserError, match="give the wrapper features"):
        wrapper()(x1.flatten(1), ids=ids(2, 8))
    for shape in ((2, 3, 4), (8, DIM)):  # the second is features without their batch
        with pytest.raises(UserError, match="neither waves"):
            flows(torch.zeros(shape), ids=ids(2, 8))


def test_a_mask_says_what_is_real_as_lengths_do() -> None:
    flows, lengths = wrapper(), torch.tensor([8, 5])
    torch.manual_seed(0)
    plain = flows(features(2, 8), ids=ids(2, 8), lengths=lengths)
    torch.manual_seed(0)
    mask = torch.arange(8) < lengths[:, None]
    assert torch.equal(flows(features(2, 8), ids=ids(2, 8), mask=mask), plain)
    for wrong in (mask.flip(1), mask[:, :7]):
        with pytest.raises(UserError, match="pad rows at their end"):
            flows(features(2, 8), ids=ids(2, 8), mask=wrong)
    with pytest.raises(UserError, match="given twice"):
        flows(features(2, 8), ids=ids(2, 8), mask=mask, lengths=lengths)


def test_VB17_ids_of_other_rates_become_ids_of_frames() -> None:
    flows = wrapper()
    listening = Listening(flows)
    flows(features(1, 6), semantic_token_ids=torch.tensor([[3, 5, 7]]))
    assert listening.heard["ids"][0].tolist() == [3, 3, 5, 5, 7, 7]
    durations = torch.tensor([[1, 5]])
    flows(features(1, 6), phoneme_ids=torch.tensor([[2, 4]]), durations=durations)
    assert listening.heard["ids"][0].tolist() == [2, 4, 4, 4, 4, 4]
    for words in ({"phoneme_ids": torch.tensor([[2, 4]])}, {"ids": ids(1, 4)}):
        with pytest.raises(UserError, match=r"has \d ids and 6 frames: .* their durations"):
            flows(features(1, 6), **words)
    with pytest.raises(UserError, match="has 8 ids and 6 frames"):
        flows(features(1, 6), ids=ids(1, 8))
    flows(features(1, 6), ids=ids(1, 7))  # one rounds up what another rounds down
    with pytest.raises(UserError, match="do not add up"):
        flows(features(1, 6), phoneme_ids=torch.tensor([[2, 4]]), durations=durations + 1)
    with pytest.raises(UserError, match="one of ids"):
        flows(features(1, 6), ids=ids(1, 6), semantic_token_ids=ids(1, 3))


def test_VB17_waves_without_ids_are_heard_by_the_semantic_tokenizer() -> None:
    """The way of older scripts: `ConditionalFlowMatcherWrapper(voicebox, text_to_semantic=…)(audio)`."""
    flows = ConditionalFlowMatcherWrapper(model(), Blocks(), text_to_semantic=Speaker())
    listening = Listening(flows)
    waves = torch.tensor([[3.0, 5.0, 7.0], [1.0, 2.0, 0.0]]).repeat_interleave(Ears.size, 1)
    flows(waves, lengths=torch.tensor([36, 20]))
    assert listening.heard["ids"].tolist() == [[3, 3, 5, 5, 7, 7], [1, 1, 2, -1, -1, -1]]
    flows(waves, ids=ids(2, 6))
    assert torch.equal(listening.heard["ids"], ids(2, 6))  # what is given goes before what is heard


def test_a_model_of_ids_is_not_trained_without_any() -> None:
    for sound in (features(2, 6), features(2, 6).flatten(1)):
        with pytest.raises(UserError, match="conditioned on ids, and there are none"):
            wrapper(Blocks())(sound)
    wrapper(Blocks())(features(2, 6), ids=torch.full((2, 6), -1))  # said on purpose
    wrapper(Blocks(), condition_on_text=False)(features(2, 6))


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
    ConditionalFlowMatcherWrapper(made, sigma=0.0)
    for older in ({"use_torchode": True}, {"sigma": 0.1}, {"torchode_method_klass": object}):
        with pytest.raises(UserError, match=f"has {next(iter(older))}=.* only"):
            ConditionalFlowMatcherWrapper(made, **older)
    with pytest.raises(UserError, match=r"cond_drop_prob is 1\.5"):
        ConditionalFlowMatcherWrapper(made, cond_drop_prob=1.5)
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
