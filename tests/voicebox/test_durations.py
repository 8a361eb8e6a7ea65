"""A duration predictor that learns, asks for no prompt, and lasts as long as it is told."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_timed_trainings import NUM_SYMBOLS, Rhythms, duration_trainer, predictor, whole_state
from voicebox_tones import aligner, corpus

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.verbs.systems import load_recipe
from madrigal.voicebox.aligning import align_manifest
from madrigal.voicebox.durations import DurationPredictor

KINDS = ("regression", "flow")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = {}
    for kind in KINDS:
        options: dict[str, Any] = {
            "num_train_steps": 90,
            "batch_size": 12,
            "save_results_every": 10,
            "dataset": Rhythms(600),
        }
        options |= {"valid_frac": 0.05, "num_samples": 0, "save_model_every": 90}
        made[kind] = duration_trainer(tmp_path_factory.mktemp(kind), kind, **options).train()
    return made


def paced(row: torch.Tensor, pace: int) -> torch.Tensor:
    return (row + 2) * pace


@pytest.mark.parametrize("kind", KINDS)
def test_VB9_it_learns(kind: str, trained: dict[str, Any]) -> None:
    """The error of symbols in frames falls, and the validation curve shows it."""
    lines = [json.loads(line) for line in (trained[kind].run.path / "metrics.jsonl").read_text().splitlines()]
    losses = [line["valid/loss"] for line in lines if "valid/loss" in line]
    assert losses[-1] < losses[0]
    model, fresh = trained[kind].model.eval(), predictor(kind).eval()
    fresh.mean.copy_(model.mean)
    fresh.std.copy_(model.std)
    symbols = torch.stack([torch.arange(NUM_SYMBOLS).roll(shift) for shift in range(6)])
    # The first half is given, in one of the two paces that there are; the other half follows it.
    known = paced(symbols, 2)
    known[:, 3:] = 0
    wrong, unlearned = (
        (each.predict(symbols, context_durations=known) - paced(symbols, 2)).abs().float().mean()
        for each in (model, fresh)
    )
    assert float(wrong) < 0.35 * float(unlearned)


@pytest.mark.parametrize("kind", KINDS)
def test_the_pace_of_the_prompt_is_kept(kind: str, trained: dict[str, Any]) -> None:
    model = trained[kind].model.eval()
    symbols = torch.arange(NUM_SYMBOLS).repeat(2)[None]
    sums = []
    for pace in (1, 2):
        known = paced(symbols, pace)
        known[:, 6:] = 0
        found = model.predict(symbols, context_durations=known)
        assert found[:, :6].equal(known[:, :6])
        sums.append(int(found[:, 6:].sum()))
    assert sums[1] > 1.4 * sums[0]


@pytest.mark.parametrize("kind", KINDS)
def test_VB10_no_prompt_is_needed_and_lengths_are_kept(kind: str, trained: dict[str, Any]) -> None:
    model = trained[kind].model.eval()
    symbols = torch.tensor([[0, 1, 2, 3, 4, 5], [5, 4, 3, PAD, PAD, PAD]])
    found = model.predict(symbols)
    assert found.shape == symbols.shape
    assert ((found > 0) == (symbols != PAD)).all()
    assert model.predict(symbols, seconds=0.5).sum(1).tolist() == [50, 50]
    assert model.predict(symbols, frames=[31, 7]).sum(1).tolist() == [31, 7]
    fast, slow = (model.predict(symbols, rate=rate).sum(1) for rate in (2.0, 0.5))
    for row in range(2):
        assert int(slow[row]) == pytest.approx(2 * int(found[row].sum()), rel=0.1)
        assert int(fast[row]) == pytest.approx(int(found[row].sum()) / 2, rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_equal_rows_alone(kind: str, trained: dict[str, Any]) -> None:
    model = trained[kind].model.eval()
    rows = [Rhythms()[index]["symbols"] for index in range(4)]
    symbols = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    together = model.predict(symbols, seed=[3, 4, 5, 6])
    for number, row in enumerate(rows):
        alone = model.predict(row[None], seed=3 + number)
        assert alone[0].equal(together[number, : len(row)])


def test_other_noise_gives_another_rhythm(trained: dict[str, Any]) -> None:
    symbols = torch.arange(NUM_SYMBOLS).repeat(3)[None]
    first, again, other = (trained["flow"].model.predict(symbols, seed=seed) for seed in (0, 0, 1))
    assert first.equal(again)
    assert not first.equal(other)
    with pytest.raises(UserError, match="kind=flow"):
        trained["regression"].model.predict(symbols, steps=4)


def test_what_cannot_last_is_refused(trained: dict[str, Any]) -> None:
    model, symbols = trained["regression"].model, torch.arange(NUM_SYMBOLS)[None]
    with pytest.raises(UserError, match="too few"):
        model.predict(symbols, frames=NUM_SYMBOLS - 1)
    with pytest.raises(UserError, match="give one of them"):
        model.predict(symbols, frames=20, seconds=1.0)
    with pytest.raises(UserError, match="rate is 0"):
        model.predict(symbols, rate=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_X2_X3_resumed_is_unbroken(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"ff_dropout": 0.1}
    whole = duration_trainer(tmp_path / "whole", kind, model=predictor(kind, **options)).train()
    broken = duration_trainer(tmp_path / "broken", kind, model=predictor(kind, **options))

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    assert broken.step == 4
    model = predictor(kind, 7, **options)
    resumed = duration_trainer(tmp_path / "broken", kind, model=model, resume=True).train()
    first, second = whole_state(whole), whole_state(resumed)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_VB6_validation_changes_nothing_about_training(kind: str, tmp_path: Path) -> None:
    plain, watched = (
        duration_trainer(tmp_path / folder, kind, model=predictor(kind, ff_dropout=0.1)) for folder in ("a", "b")
    )
    for _ in range(3):
        expected = plain.train_step()
        first = watched.validation()
        assert watched.validation() == first
        watched.write_samples()
        assert watched.train_step() == expected


def test_older_words_are_understood() -> None:
    older: dict[str, Any] = {
        "num_phoneme_tokens": 9,
        "dim_phoneme_emb": 16,
        "dim": 16,
        "depth": 2,
        "heads": 2,
        "attn_flash": True,
    }
    model = DurationPredictor(**older, use_gateloop_layers=False, p_drop_prob=0.5)
    assert (model.config.num_symbols, model.config.dim_symbol_emb, model.config.p_drop_prob) == (9, 16, 0.5)
    english = DurationPredictor(dim=16, depth=2, heads=2, dim_phoneme_emb=8)
    assert english.symbols is not None
    assert english.predict(*english.symbols.batch(["So far."])).shape[1] == len(english.symbols.encode("So far."))
    with pytest.raises(UserError, match="an Aligner is trained for itself"):
        DurationPredictor(**older, aligner_kwargs={"dim_in": 80})
    with pytest.raises(UserError, match="did you mean num_symbols"):
        DurationPredictor(num_symbol=9)


def test_a_saved_predictor_predicts_alike(trained: dict[str, Any], tmp_path: Path) -> None:
    model = trained["flow"].model.eval()
    again = DurationPredictor.from_pretrained(model.save_pretrained(tmp_path))
    symbols = torch.arange(NUM_SYMBOLS)[None]
    assert again.predict(symbols).equal(model.predict(symbols))


def test_from_an_aligner_to_durations_by_recipes(tmp_path: Path) -> None:
    manifest = corpus(tmp_path / "recordings", 8)
    model = aligner().eval()
    align_manifest(model, manifest, tmp_path / "alignments")
    words = [f"data.path={tmp_path / 'recordings'}", f"data.alignments={tmp_path / 'alignments'}"]
    trainer = load_recipe("durations/tiny", words).trainer(tmp_path / "run")
    assert trainer.model.config.symbols == model.config.symbols
    assert trainer.model.config.frame_rate == model.config.frame_rate
    trainer.train()
    assert list((tmp_path / "run").glob("samples/*/*durations*.txt"))
    model.means.weight.data.add_(1)
    align_manifest(model, manifest, tmp_path / "others")
    changed = load_recipe("durations/tiny", [words[0], f"data.alignments={tmp_path / 'others'}"])
    with pytest.raises(UserError, match="another aligner"):
        changed.trainer(tmp_path / "run", resume=True)
