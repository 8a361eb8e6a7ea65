"""The head that reads: its loss is that of all ways to place the letters, and what it reads is what it learned."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import SPEECH, TEXT, small_model
from spear_trainings import make, new_model, random_ids
from untranscribed import reader, reading_run, speech

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.ctc import LETTERS, CtcHead
from madrigal.speartts.losses import learn
from madrigal.speartts.model import MASKED
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
        torch.testing.assert_close(head.loss(hidden, torch.tensor([2]), ids), wanted)


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
        nll = model.ctc.loss(hidden, torch.tensor([length]), text) * len(wanted)
        torch.testing.assert_close(made.confidence[row], -nll / (len(wanted) + 1))
    assert bool(made.ended.all())


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


def test_nothing_is_hidden_in_validation(tmp_path: Path) -> None:
    batch = make("semantic-to-text", tmp_path / "a").collate([{"semantic": torch.arange(9), "text": "so far"}])
    wrappers = [SemanticToTextWrapper(new_model(), mask_prob=share) for share in (0.0, 0.6)]
    torch.manual_seed(0)
    still, learning = ([float(w.losses(batch, training=t)["text"]) for w in wrappers] for t in (False, True))
    assert still[0] == still[1]
    assert learning[0] != learning[1]


def test_it_learns_to_read_one_batch(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_train_steps": 150, "batch_size": 4, "freeze_encoder": False, "valid_frac": 0.0}
    trainer = make("semantic-to-text", tmp_path, model={"ctc_loss_weight": 1.0}, **options)
    said = ["so far", "away", "hills", "ring so"]
    items = [
        {"semantic": row[:length], "text": text}
        for row, length, text in zip(*random_ids(20, (9, 6, 8, 7)), said, strict=True)
    ]
    batch = trainer.collate(items)
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=5e-3)
    for _ in range(150):
        optimizer.zero_grad()
        trainer.wrapper.losses(batch, training=True)["ctc"].backward()
        optimizer.step()
    read = trainer.model.read(batch["semantic"])
    assert trainer.model.text_tokenizer is not None
    assert [trainer.model.text_tokenizer.decode(row.tolist()) for row in read.rows()] == said
    assert float(read.confidence.exp().min()) > 0.5


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
