"""What a recording is told by: captions of a manifest, those that are the same, and those that tell nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_mulans import RATE, chord, mulan, pairs, recordings, trainer

from madrigal import UserError
from madrigal.data.manifest import Entry
from madrigal.data.prepare import prepare
from madrigal.judge.retrieval import judge_ranks
from madrigal.mulan_evaluation import evaluate_mulan
from madrigal.musiclm.captions import CaptionedSource, captions_of, is_captioned
from madrigal.musiclm.retrieval import recall_by_chance


def entry(**fields: Any) -> Entry:
    return Entry(path="a.wav", duration=1, sample_rate=RATE, channels=1, **fields)


@pytest.mark.parametrize("captions", ["a slow piano", 5, ["one", 2], {"one": 1}])
def test_captions_that_are_no_list_of_texts_are_told(captions: Any) -> None:
    with pytest.raises(UserError, match=r"a\.wav are no list of texts"):
        captions_of(entry(text="slow piano", captions=captions))


def test_captions_alone_are_captions() -> None:
    assert captions_of(entry(text=" ", captions=["one", "one", "two"])) == ["one", "two"]
    assert is_captioned(entry(captions=["one"]))
    assert not is_captioned(entry(captions=[" "]))
    assert not is_captioned(entry(captions=None))


def without_texts(folder: Path) -> tuple[Path, list[str]]:
    """A manifest whose recordings have `captions` alone, and the first of each."""
    prepare(recordings(folder / "music", 8), folder / "prepared")
    file = folder / "prepared" / "manifest.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    first = [row.pop("text") for row in entries]
    rows = [{**row, "captions": [text, "another"]} for row, text in zip(entries, first, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, first


def test_validation_reads_the_first_of_captions_without_a_text(tmp_path: Path) -> None:
    file, first = without_texts(tmp_path)
    source = CaptionedSource(path=file, valid_path=file)
    train, valid = source.pairs(RATE, prepared_in=tmp_path / "run", anew=True, say=None)
    assert {train.draw(0, np.random.default_rng(seed))["text"] for seed in range(30)} == {first[0], "another"}
    assert [valid.draw(number, np.random.default_rng(number))["text"] for number in range(8)] == first


def test_who_has_captions_alone_is_judged_by_the_first(tmp_path: Path) -> None:
    file, first = without_texts(tmp_path)
    model = mulan().save_pretrained(tmp_path / "mulan")
    report, _ = evaluate_mulan(model, data=file, out=tmp_path / "judged")
    assert (report.pairs, report.texts) == (8, len(set(first)))
    assert [hit.text for hit in report.hits] == first[: len(report.hits)]


def test_equal_ids_are_equal_captions_however_they_are_padded() -> None:
    """As negatives of each other they would be pushed apart, though the text side reads the same."""
    ids = torch.tensor([[5, 6, 0, 0], [5, 6, -1, -1], [5, 7, 0, -1]])
    labels = mulan().labels(ids).tolist()
    assert labels[0] == labels[1] != labels[2]
    other = mulan(text={"pad_id": 7}).labels(ids).tolist()
    assert len(set(other)) == 3  # 0 is an id there
    waves = torch.stack([chord(0), chord(1)])
    assert float(mulan().contest(waves, ids[:2]).loss.detach()) == 0.0


def test_captions_that_differ_where_nobody_reads_are_equal() -> None:
    model = mulan(text={"max_seq_len": 6}).eval()
    texts = ["slow piano", "slow pipes", "fast piano"]
    latents, labels = model.get_text_latents(texts), model.labels(texts).tolist()
    assert torch.equal(latents[0], latents[1])
    assert labels[0] == labels[1] != labels[2]
    ids = torch.tensor([list(text.encode()) for text in texts])
    assert model.labels(ids).tolist() == labels


@pytest.mark.parametrize("labels", [list(range(30)), [n % 7 for n in range(30)], [0] * 30, [0] * 25 + [1] * 5, [0, 1]])
def test_recall_by_chance_knows_equal_captions_as_the_judge_does(labels: list[int]) -> None:
    rights = [labels.count(label) for label in labels]
    wanted = judge_ranks("", [0.0] * len(labels), rights).chance
    for most in (1, 5, 10):
        assert recall_by_chance(torch.tensor(labels), most) == pytest.approx(wanted[most])


def test_validation_tells_the_chance_among_equal_captions(tmp_path: Path) -> None:
    data = [(chord(number), f"one of two {number % 2}") for number in range(32)]
    found = trainer(tmp_path, data=data, val_dataset=data, batch_size=8).validation()
    assert found["valid/chance/recall@10"] > 0.99


@pytest.mark.parametrize("options", [{}, {"sigmoid_contrastive_loss": True}, {"decoupled_contrastive_learning": False}])
@pytest.mark.parametrize("told", ["", "music"])
def test_an_alarm_in_words_when_captions_are_all_the_same(
    told: str, options: dict[str, bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [(wave, told) for wave, _ in pairs(16, seconds=0.25)]
    plan: dict[str, Any] = {"num_train_steps": 2, "chance_alarm_every": 2, "valid_frac": 0.0}
    trainer(tmp_path, mulan(**options), data, **plan).train()
    assert "captions are the same or empty" in " ".join("".join(capsys.readouterr()).split())


def test_no_alarm_where_two_captions_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A decoupled contest of two is at chance 0 too, and learns."""
    plan: dict[str, Any] = {"num_train_steps": 2, "chance_alarm_every": 2, "valid_frac": 0.0, "batch_size": 2}
    trainer(tmp_path, mulan(), pairs(16, seconds=0.25), **plan).train()
    said = " ".join("".join(capsys.readouterr()).split())
    assert "same or empty" not in said
    assert "by chance" not in said


def test_no_texts_at_all_are_told() -> None:
    with pytest.raises(UserError, match="at least one text"):
        mulan().get_text_latents([])
    with pytest.raises(UserError, match="at least one text"):
        mulan().get_text_latents(torch.zeros(0, 3, dtype=torch.long))


def test_a_bare_text_is_one_text() -> None:
    model = mulan().eval()
    assert torch.equal(model.get_text_latents("slow"), model.get_text_latents(["slow"]))


def test_pairs_of_one_s_own_are_checked(tmp_path: Path) -> None:
    """A mean over a batch with one such wave would be no number, and with it all that is learned."""
    data: list[Any] = pairs(16, seconds=0.25)
    data[3] = (torch.full((1000,), float("nan")), data[3][1])
    with pytest.raises(UserError, match="item 3 of MuLaN's dataset has samples that are not finite"):
        trainer(tmp_path / "nan", data=data, batch_size=16, valid_frac=0.0).train_step()
    for length in (0, -5):
        with pytest.raises(UserError, match=f"data_max_length is {length}"):
            trainer(tmp_path / "cut", data=pairs(16), data_max_length=length)
