"""The head that reads: its loss is that of all ways to place the letters, and what it reads is what it learned."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import SPEECH, TEXT, small_model
from spear_trainings import Pairs, make, new_model, random_ids
from untranscribed import reader, reading_run, speech

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.ctc import LETTERS, CtcHead
from madrigal.speartts.generated import SemanticToTextDatasetGenerator
from madrigal.speartts.losses import learn
from madrigal.speartts.model import MASKED, TextToSemantic
from madrigal.speartts.pairs import Ids
from madrigal.speartts.pseudo_label import Reader, pseudo_label
from madrigal.speartts.wrappers import SemanticToTextWrapper


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    return [letter for letter, _ in itertools.groupby(path) if letter != blank]


@torch.no_grad()
def test_the_loss_is_that_of_all_ways_to_place_the_letters() -> None:
    torch.manual_seed(0)
    head = CtcHead(4, 2)
    hidden = 3 * torch.randn(1, 2, 4)
    log_probs = head(hidden)[0]
    assert log_probs.shape == (2 * LETTERS, 3)
    for text in ([0], [0, 1], [1, 1]):
        ways = [
            sum(float(log_probs[place, letter]) for place, letter in enumerate(path))
            for path in itertools.product(range(3), repeat=len(log_probs))
            if collapsed(path, 2) == text
        ]
        wanted = -torch.tensor(ways).logsumexp(0) / len(text)
        ids = Ids(torch.tensor([text]), torch.tensor([len(text)]))
        torch.testing.assert_close(head.cost(hidden, torch.tensor([2]), ids).mean, wanted)


@torch.no_grad()
def test_what_is_read_is_the_likeliest_letter_of_each_place_and_rows_stay_alone() -> None:
    model = small_model(ctc_loss_weight=1.0)
    assert model.ctc is not None
    source = random_ids(SPEECH, (9, 4, 6), extra=3)
    made = model.read(source.ids)
    assert torch.equal(made.source_lengths, source.lengths)
    for row, (ids, length) in enumerate(zip(source.ids, source.lengths.tolist(), strict=True)):
        hidden = model.encode("speech", ids[None, :length]).hidden
        log_probs = model.ctc(hidden)[0]
        wanted = collapsed(tuple(log_probs.argmax(-1).tolist()), TEXT)
        assert made.rows()[row].tolist() == wanted
        text = Ids(torch.tensor([wanted]), torch.tensor([len(wanted)]))
        nll = model.ctc.cost(hidden, torch.tensor([length]), text).nll[0]
        torch.testing.assert_close(made.confidence[row], -nll / max(1, len(wanted)))  # it has no end to be sure of
    assert bool(made.ended.all())


def test_a_text_that_does_not_fit_counts_nowhere() -> None:
    torch.manual_seed(0)
    head = CtcHead(4, 3)
    hidden, lengths = torch.randn(4, 3, 4, requires_grad=True), torch.tensor([3, 3, 1, 3])
    rows = [[0, 1, 2], [0, 1, 2, 0, 1, 2, 0], [1, 1], [1, 1, 1, 1]]  # two of the same need a place between them
    text = Ids(torch.tensor([row + [PAD] * (7 - len(row)) for row in rows]), torch.tensor([3, 7, 2, 4]))
    cost = head.cost(hidden, lengths, text)
    assert cost.fits.tolist() == [True, False, False, False]
    alone = head.cost(hidden[:1], lengths[:1], Ids(text.ids[:1, :3], text.lengths[:1]))
    torch.testing.assert_close(cost.mean, alone.mean)
    assert int(cost.counted) == 3
    none = head.cost(hidden[1:], lengths[1:], Ids(text.ids[1:], text.lengths[1:]))
    assert (float(none.mean.detach()), int(none.counted)) == (0.0, 0)
    both = torch.autograd.grad(cost.mean + none.mean, hidden)[0]
    assert bool(both[0].any())
    assert not bool(both[1:].any()), "nor is anything learned from it"


@torch.no_grad()
def test_a_text_with_just_enough_room_fits() -> None:
    head = CtcHead(4, 3)
    hidden = torch.randn(1, 3, 4)
    for row in ([0, 1, 2, 0, 1, 2], [0, 0, 1, 2, 0], [1, 1, 1, 0]):
        cost = head.cost(hidden, torch.tensor([3]), Ids(torch.tensor([row]), torch.tensor([len(row)])))
        assert bool(cost.fits.all())
        assert float(cost.nll) > 0


def test_what_does_not_fit_is_told_once_and_no_figure_says_that_it_was_read_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Long(Pairs):
        def __getitem__(self, index: int) -> Any:
            return {**super().__getitem__(index), "text": "so far away " * 9}

    def trainer(name: str, valid: Pairs) -> Any:
        options: dict[str, Any] = {"dataset": Long(), "val_dataset": valid}
        return make("semantic-to-text", tmp_path / name, model={"ctc_loss_weight": 1.0}, **options)

    none = trainer("none", Long(4)).train()
    assert capsys.readouterr().err.count("3 of 3 texts of a batch have more symbols than CTC has room for") == 1
    figures = none.validation()
    assert figures["valid/ctc_fits"] == 0
    assert "valid/ctc" not in figures
    assert figures["valid/loss"] == pytest.approx(figures["valid/text"])
    some = trainer("some", Pairs(9)).validation()
    assert 0 < some["valid/ctc_fits"] <= 1
    assert some["valid/ctc"] > 0
    assert some["valid/loss"] == pytest.approx(some["valid/text"] + some["valid/ctc"])


def test_rows_without_a_token_have_nothing_to_read() -> None:
    model = small_model(ctc_loss_weight=1.0)
    made = model.read(torch.full((2, 3), PAD))
    assert made.lengths.tolist() == [0, 0]
    assert torch.equal(made.confidence, torch.zeros(2))
    empty = Ids(torch.empty(2, 0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    outcome = learn(model, ("speech", empty), ("text", random_ids(TEXT, (2, 3))), training=True)
    assert outcome.ctc is not None
    assert not bool(outcome.ctc.fits.any())
    sum(outcome.losses("text").values()).backward()  # type: ignore[union-attr]
    assert float(outcome.ctc.mean.detach()) == 0
    assert SemanticToTextWrapper(model, mask_prob=0.5).seen(empty) is empty


@pytest.mark.parametrize("beam", [None, 1, 4])
def test_labels_of_rows_without_a_token_say_so(beam: int | None) -> None:
    rows = [np.arange(5) % SPEECH, np.empty(0, dtype=np.int64)]
    found = dict(Reader(small_model(ctc_loss_weight=1.0), beam_size=beam).read(rows))
    assert found[1].reason == "it has no tokens"
    assert found[0].reason != "it has no tokens"


def test_a_model_without_the_head_says_so() -> None:
    with pytest.raises(UserError, match="has no CTC head: train it with ctc_loss_weight over 0"):
        small_model().read(torch.tensor([[1, 2]]))


def test_the_term_is_there_where_speech_is_read_and_weighs_what_it_was_given() -> None:
    model = new_model(ctc_loss_weight=0.3)
    speech_ids, text = random_ids(20, (6, 4)), random_ids(10, (3, 2), seed=2)
    read = learn(model, ("speech", speech_ids), ("text", text), training=False)
    assert read.losses("text").keys() == {"text", "ctc"}
    assert SemanticToTextWrapper(model).weight("ctc") == 0.3
    spoken = learn(model, ("text", text), ("speech", speech_ids), training=False)
    assert spoken.losses("speech").keys() == {"speech"}


def test_a_share_of_the_speech_is_hidden_while_it_learns_and_never_padding() -> None:
    torch.manual_seed(0)
    source = random_ids(20, (2000, 700))
    hidden = SemanticToTextWrapper(new_model(), mask_prob=0.35).seen(source)
    is_masked = hidden.ids == MASKED
    assert float(is_masked[0].float().mean()) == pytest.approx(0.35, abs=0.05)
    assert torch.equal(hidden.ids == PAD, source.ids == PAD)
    assert torch.equal(hidden.ids[~is_masked], source.ids[~is_masked])
    runs = [len(list(places)) for masked, places in itertools.groupby(is_masked[0].tolist()) if masked]
    assert min(runs[1:-1]) == 3
    assert SemanticToTextWrapper(new_model()).seen(source) is source


def test_SP7_every_place_is_hidden_as_often_and_something_is_always_seen() -> None:
    torch.manual_seed(0)
    source = random_ids(20, (12,) * 4000)
    is_masked = SemanticToTextWrapper(new_model(), mask_prob=0.35).seen(source).ids == MASKED
    assert is_masked.float().mean(0).tolist() == pytest.approx([0.35] * 12, abs=0.03)
    # Of a row in which the ends alone are hidden, both ends are hidden by spans of their own.
    both = float((is_masked[:, 0] & is_masked[:, -1]).float().mean())
    assert both == pytest.approx(0.35**2, abs=0.03)
    short = random_ids(20, (4, 1, 2) * 400)
    seen = SemanticToTextWrapper(new_model(), mask_prob=0.9).seen(short)
    assert bool((((seen.ids != MASKED) & (seen.ids != PAD)).sum(1) > 0).all())


def test_rows_without_their_source_are_read_all_the_same() -> None:
    """The head looks at the encoder, which sees the source of every row."""
    model = new_model(ctc_loss_weight=1.0, cond_drop_prob=1.0, align_reg_loss_weight=0.0)
    speech_ids, text = random_ids(20, (9, 7)), random_ids(10, (3, 2), seed=2)
    costs = [learn(model, ("speech", speech_ids), ("text", text), training=t).ctc for t in (True, False)]
    assert costs[0] is not None
    assert costs[1] is not None
    torch.testing.assert_close(costs[0].nll, costs[1].nll)
    padded = Ids(torch.nn.functional.pad(speech_ids.ids, (0, 4), value=PAD), speech_ids.lengths)
    wider = learn(model, ("speech", padded), ("text", text), training=False).ctc
    assert wider is not None
    torch.testing.assert_close(wider.nll, costs[1].nll)


def test_nothing_is_hidden_in_validation(tmp_path: Path) -> None:
    batch = make("semantic-to-text", tmp_path / "a").collate([{"semantic": torch.arange(9), "text": "so far"}])
    wrappers = [SemanticToTextWrapper(new_model(), mask_prob=share) for share in (0.0, 0.6)]
    torch.manual_seed(0)
    still, learning = ([float(w.losses(batch, training=t)["text"]) for w in wrappers] for t in (False, True))
    assert still[0] == still[1]
    assert learning[0] != learning[1]


def test_it_learns_to_read_one_batch(tmp_path: Path) -> None:
    """By the trainer, as it weighs the term."""
    said = ["so far", "away", "hills", "ring so"]
    items = [
        {"semantic": row[:length], "text": text}
        for row, length, text in zip(*random_ids(20, (9, 6, 8, 7)), said, strict=True)
    ]
    options: dict[str, Any] = {"num_train_steps": 150, "batch_size": 4, "freeze_encoder": False, "valid_frac": 0.0}
    options |= {"dataset": items, "lr": 5e-3, "scheduler": "constant", "save_model_every": 1000}
    trainer = make("semantic-to-text", tmp_path, model={"ctc_loss_weight": 1.0}, **options).train()
    batch = trainer.collate(items)
    read = trainer.model.read(batch["semantic"])
    assert trainer.model.text_tokenizer is not None
    assert [trainer.model.text_tokenizer.decode(row.tolist()) for row in read.rows()] == said
    assert float(read.confidence.exp().min()) > 0.5


def test_validation_reads_as_labels_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make("semantic-to-text", tmp_path, model={"ctc_loss_weight": 1.0})
    monkeypatch.setattr(TextToSemantic, "generate", None)
    assert "valid/cer" in trainer.validation()


def test_python_reads_a_dataset_as_the_command_does(tmp_path: Path) -> None:
    items = [torch.arange(3 * n, 3 * n + 8) % SPEECH for n in range(4)]
    for name, asked, beam in (
        ("head", {}, None),
        ("four", {"beam_search_decode": True}, 4),
        ("two", {"beam_size": 2}, 2),
        ("one", {"beam_search_decode": False}, 1),
    ):
        generate = SemanticToTextDatasetGenerator(
            reader(ctc_loss_weight=1.0), dataset=items, folder=tmp_path / name, batch_size=2
        )
        generate(**asked)  # type: ignore[arg-type]
        assert json.loads((tmp_path / name / "settings.json").read_text())["beam_size"] == beam


def test_labels_are_read_by_it_unless_a_beam_is_asked_for(tmp_path: Path) -> None:
    run = reading_run(tmp_path / "run", ctc_loss_weight=1.0)
    manifest = speech(tmp_path / "speech")
    for folder, beam in (("ctc", None), ("beam", 2)):
        pseudo_label(run, manifest, tmp_path / folder, threshold=0.0, beam_size=beam)
    sets = {folder: json.loads((tmp_path / folder / "settings.json").read_text()) for folder in ("ctc", "beam")}
    assert (sets["ctc"]["beam_size"], sets["beam"]["beam_size"]) == (None, 2)
    manifests = [(tmp_path / folder / "manifest.jsonl").read_text() for folder in ("ctc", "beam")]
    assert manifests[0] != manifests[1]
    assert Reader(reader()).beam_size == 4  # without the head the decoder reads
