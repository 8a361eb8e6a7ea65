"""Beam search: greedy with one hypothesis, exhaustive with enough of them, and each row as if it were alone."""

import itertools

import pytest
import torch
from small_models import GREEDY, SPEECH, encoded_sources, limits, small_model, whole_logits

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling
from madrigal.speartts.beam import beam_search
from madrigal.speartts.decoding import decode
from madrigal.speartts.model import Encoded, TextToSemantic

IDS = 3


def exhaustive(
    model: TextToSemantic, encoded: Encoded, most: int, penalty: float, cond_scale: float = 1.0
) -> tuple[list[int], float]:
    """The best of all targets of up to `most` tokens for one row, and its score; a full one needs no end."""
    full = torch.tensor(list(itertools.product(range(IDS), repeat=most)))
    logs = whole_logits(model, encoded.select([0] * len(full)), full, cond_scale).double().log_softmax(-1)
    scores: dict[tuple[int, ...], float] = {}
    for row, ids in enumerate(full.tolist()):
        tokens = [float(logs[row, at, token]) for at, token in enumerate(ids)]
        scores[tuple(ids)] = sum(tokens) / most**penalty
        for length in range(most):
            whole = sum(tokens[:length]) + float(logs[row, length, IDS])
            scores[tuple(ids[:length])] = whole / (length + 1) ** penalty
    best = max(scores, key=lambda ids: scores[ids])
    return list(best), scores[best]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 1.5])
@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_SP9_with_enough_hypotheses_the_search_is_exhaustive(penalty: float, cond_scale: float) -> None:
    lengths = set()
    for seed in range(5):
        model = small_model(seed, num_semantic_token_ids=IDS)
        with torch.no_grad():
            model.tables["speech"].weight[IDS] *= 2.0  # else the end is seldom the best
        encoded = encoded_sources(model, 2, seed)
        made = beam_search(
            model,
            "speech",
            encoded,
            limits(2, 4),
            beam_size=200,
            length_penalty=penalty,
            sampling=Sampling(cond_scale=cond_scale),
        )
        for row, ids in enumerate(made.rows()):
            best, score = exhaustive(model, encoded.select([row]), 4, penalty, cond_scale)
            assert ids.tolist() == best
            count = len(ids) + int(made.ended[row])
            assert float(made.confidence[row]) * count ** (1 - penalty) == pytest.approx(score, rel=1e-4)
            assert bool(made.ended[row]) or len(ids) == 4
        lengths.update(made.lengths.tolist())
    assert len(lengths) > 1


def plain_beams(model: TextToSemantic, encoded: Encoded, most: int, size: int, penalty: float) -> list[int]:
    """A beam search over one row as one would write it down: lists, whole passes, nothing left early."""
    beams: list[tuple[float, float, list[int], bool]] = [(0.0, 0.0, [], False)]  # score, sum, ids, ended
    for step in range(1, most + 1):
        grown = [beam for beam in beams if beam[3]]
        for _, total, ids, ended in beams:
            if not ended:
                target = torch.tensor([ids], dtype=torch.int64)
                logs = whole_logits(model, encoded, target)[0, -1].double().log_softmax(-1).tolist()
                for token, log in enumerate(logs):
                    is_end = token == SPEECH
                    more = ids if is_end else [*ids, token]
                    grown.append(((total + log) / step**penalty, total + log, more, is_end))
        beams = sorted(grown, key=lambda beam: -beam[0])[:size]
    return beams[0][2]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("size", [2, 5])
def test_a_few_hypotheses_are_searched_as_one_would_write_it_down(size: int, penalty: float) -> None:
    for seed in range(3):
        model = small_model(seed)
        encoded = encoded_sources(model, 2, seed)
        made = beam_search(model, "speech", encoded, limits(2, 7), beam_size=size, length_penalty=penalty)
        for row, ids in enumerate(made.rows()):
            assert ids.tolist() == plain_beams(model, encoded.select([row]), 7, size, penalty)


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_one_hypothesis_is_greedy(cond_scale: float) -> None:
    for seed in range(10):
        model = small_model(seed)
        encoded = encoded_sources(model, 4, seed)
        ours = beam_search(
            model, "speech", encoded, limits(4, 20), beam_size=1, sampling=Sampling(cond_scale=cond_scale)
        )
        greedy = GREEDY.model_copy(update={"cond_scale": cond_scale})
        theirs = decode(model, "speech", encoded, limits(4, 20), sampling=greedy, noise=RowNoise(range(4)))
        assert torch.equal(ours.ids, theirs.ids)
        assert torch.equal(ours.ended, theirs.ended)
        torch.testing.assert_close(ours.confidence, theirs.confidence, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_a_row_among_others_is_searched_as_it_is_alone(cond_scale: float) -> None:
    for seed in range(4):
        model = small_model(seed)
        encoded = encoded_sources(model, 5, seed)
        most, sampling = torch.tensor([20, 2, 9, 20, 1]), Sampling(cond_scale=cond_scale)
        together = beam_search(model, "speech", encoded, most, beam_size=3, sampling=sampling)
        for row in range(5):
            own = most[row : row + 1]
            alone = beam_search(model, "speech", encoded.select([row]), own, beam_size=3, sampling=sampling)
            assert together.rows()[row].tolist() == alone.rows()[0].tolist()
            torch.testing.assert_close(together.confidence[row], alone.confidence[0], rtol=1e-4, atol=1e-5)


def test_SP9_scores_are_those_of_what_was_written() -> None:
    """Nothing is scored behind an end, and the cache follows the hypotheses when they change places."""
    for seed in range(6):
        model = small_model(seed)
        encoded = encoded_sources(model, 3, seed)
        made = beam_search(model, "speech", encoded, limits(3, 15), beam_size=4)
        assert ((made.ids == PAD) == ~made.mask).all()
        for row, ids in enumerate(made.rows()):
            logs = whole_logits(model, encoded.select([row]), ids[None])[0].log_softmax(-1)
            scored = [*ids.tolist(), SPEECH] if made.ended[row] else ids.tolist()
            expected = torch.stack([logs[at, token] for at, token in enumerate(scored)]).mean()
            torch.testing.assert_close(made.confidence[row], expected, rtol=1e-4, atol=1e-5)


def test_confidence_knows_no_penalty_for_repetition() -> None:
    """One hypothesis is greedy decoding, and as sure of what it wrote."""
    changed = 0
    for seed in range(6):
        model = small_model(seed)
        encoded = encoded_sources(model, 4, seed)
        sampling = GREEDY.model_copy(update={"repetition_penalty": 3.0, "repetition_window": 3})
        ours = beam_search(model, "speech", encoded, limits(4, 15), beam_size=1, sampling=sampling)
        theirs = decode(model, "speech", encoded, limits(4, 15), sampling=sampling, noise=RowNoise(range(4)))
        assert torch.equal(ours.ids, theirs.ids)
        torch.testing.assert_close(ours.confidence, theirs.confidence, rtol=1e-4, atol=1e-5)
        free = beam_search(model, "speech", encoded, limits(4, 15), beam_size=1)
        changed += free.ids.shape != ours.ids.shape or not torch.equal(free.ids, ours.ids)
    assert changed > 2


def test_more_hypotheses_find_likelier_targets() -> None:
    gained = 0.0
    for seed in range(6):
        model = small_model(seed)
        encoded = encoded_sources(model, 4, seed)
        one, many = (
            beam_search(model, "speech", encoded, limits(4, 8), beam_size=size, length_penalty=0.0) for size in (1, 30)
        )
        totals = [made.confidence * (made.lengths + made.ended) for made in (one, many)]
        gained += float((totals[1] - totals[0]).sum())
    assert gained > 1.0


def test_the_length_penalty_makes_targets_longer() -> None:
    lengths = []
    for penalty in (0.0, 1.0):
        made = []
        for seed in range(6):
            model = small_model(seed)
            encoded = encoded_sources(model, 4, seed)
            made.append(beam_search(model, "speech", encoded, limits(4, 15), length_penalty=penalty).lengths.sum())
        lengths.append(int(sum(made)))
    assert lengths[0] < lengths[1]


def test_what_the_sampling_leaves_out_is_in_no_hypothesis() -> None:
    model = small_model(2)
    encoded = encoded_sources(model, 3)
    only = beam_search(model, "speech", encoded, limits(3, 15), beam_size=4, sampling=Sampling(top_k=1))
    greedy = decode(model, "speech", encoded, limits(3, 15), sampling=GREEDY, noise=RowNoise(range(3)))
    assert torch.equal(only.ids, greedy.ids)
    free = beam_search(model, "speech", encoded, limits(3, 15), beam_size=4)
    assert free.ids.shape != only.ids.shape or not torch.equal(free.ids, only.ids)


def test_a_search_stops_when_nothing_can_overtake_the_best() -> None:
    model, calls = small_model(2), []
    with torch.no_grad():
        model.tables["speech"].weight[SPEECH] *= 4.0
    encoded = encoded_sources(model, 2)
    model.upper.register_forward_hook(lambda *_: calls.append(1))
    made = beam_search(model, "speech", encoded, limits(2, 500), beam_size=4, length_penalty=0.0)
    assert made.ended.all()
    assert len(calls) < 100


def test_of_two_that_are_equally_good_the_ended_one_is_taken() -> None:
    """Every token is as likely as the end: at once the end is as good as any target can become."""
    model = small_model(2)
    with torch.no_grad():
        model.tables["speech"].weight[:] = 0.0
    short = beam_search(
        model, "speech", encoded_sources(model, 2), limits(2, 9), beam_size=SPEECH + 1, length_penalty=0.0
    )
    assert short.ended.all()
    assert short.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("wrong", [{"beam_size": 0}, {"length_penalty": -1.0}], ids=str)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    model = small_model()
    with pytest.raises(UserError, match=next(iter(wrong))):
        beam_search(model, "speech", encoded_sources(model, 1), limits(1, 4), **wrong)  # type: ignore[arg-type]
