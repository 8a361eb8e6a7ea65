"""How a MuLaN is judged: recall beside chance, tags by prompts, the page, and the command."""

import json
from pathlib import Path

import pytest
from commanding import Command
from small_mulans import LETTERS, PLAIN, caption, mulan, pairs, recordings, trainer

from madrigal import UserError
from madrigal.data.prepare import prepare
from madrigal.judge.retrieval import RetrievalReport, judge_ranks, judge_tags
from madrigal.mulan_evaluation import evaluate_mulan


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 chords, and the name of their low note in the manifest."""
    folder = tmp_path_factory.mktemp("judged")
    recordings(folder / "music", 16)
    prepare(folder / "music", folder / "prepared")
    file = folder / "prepared" / "manifest.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    for entry in entries:
        number = int(Path(entry["path"]).stem)
        entry["low"] = f"low {LETTERS[number % 8]}"
        assert entry["text"] == caption(number)
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder / "prepared"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, data = tmp_path_factory.mktemp("mulan"), pairs(16)
    made = trainer(folder, mulan(PLAIN), data, val_dataset=data, num_train_steps=40, batch_size=16, lr=3e-3)
    for _ in range(40):
        made.train_step()
    return made.model.save_pretrained(folder / "exported")


def test_recall_stands_beside_chance() -> None:
    way = judge_ranks("sound to text", [0, 0, 3, 7], [1, 1, 1, 1])
    assert way.recall[1].mean == 0.5
    assert way.recall[5].mean == 0.75
    assert way.chance[1] == pytest.approx(0.25)
    assert way.chance[5] == 1.0
    assert way.median_rank == 2.5
    assert judge_ranks("x", [0] * 4, [2] * 4).chance[1] == pytest.approx(0.5)


def test_tags_stand_beside_chance_and_the_most_frequent() -> None:
    tagging = judge_tags("instrument", ["flute", "piano"], ["piano", "piano", "flute"], ["piano", "flute", "flute"])
    assert tagging.right.mean == pytest.approx(2 / 3)
    assert (tagging.chance, tagging.majority) == (0.5, pytest.approx(2 / 3))
    assert tagging.by_class["piano"].mean == 0.5


def test_a_model_that_has_learned_is_found_out(prepared: Path, exported: Path, tmp_path: Path) -> None:
    report, folder = evaluate_mulan(exported, data=prepared, out=tmp_path, prompts=("{} high a", "{} high b"))
    for way in report.ways:
        assert way.recall[1].mean > 0.8
    assert [tagging.what for tagging in report.taggings] == ["low"]
    assert report.taggings[0].right.mean > 0.8
    assert RetrievalReport.load(folder / "report.json").ways == report.ways
    page = (folder / "report.html").read_text()
    assert "Zero-shot tagging" in page
    assert page.count("<audio") >= 5


def test_a_model_that_knows_nothing_is_at_chance(prepared: Path, tmp_path: Path) -> None:
    place = mulan().save_pretrained(tmp_path / "mulan")
    report, _ = evaluate_mulan(place, data=prepared, out=tmp_path / "report")
    assert all(way.recall[1].mean < 0.4 for way in report.ways)


def test_pairs_that_a_run_was_trained_on_are_told(prepared: Path, tmp_path: Path) -> None:
    place = mulan().save_pretrained(tmp_path / "mulan")
    report, _ = evaluate_mulan(place, data=prepared, out=tmp_path / "report")
    assert "trained on:" not in " ".join(report.notes)
    (place / "recipe.yaml").write_text(f"system: mulan\ndata: {{path: {prepared}}}\n")
    report, _ = evaluate_mulan(place, data=prepared, out=tmp_path / "again")
    count = report.pairs
    assert f"{count} of the {count} recordings are in the data that the run was trained on" in " ".join(report.notes)


def test_fields_that_are_not_there_are_told(prepared: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is low"):
        evaluate_mulan(exported, data=prepared, out=tmp_path, tags=["instrument"])


def test_the_command_judges_and_refuses(
    prepared: Path, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = Command(capsys, "evaluate")
    said = json.loads(evaluate.done(exported, "--data", prepared, "-o", tmp_path, "--tags", "low", "--json"))
    assert said["pairs"] == 16
    assert [tagging["what"] for tagging in said["taggings"]] == ["low"]
    assert "is for a codec" in evaluate.refused(exported, "--data", prepared, "--kbps", "3")
    assert "leave it out" in evaluate.refused(exported, "--data", prepared, "--recogniser", tmp_path)


def test_a_run_is_judged_on_what_it_held_out(tmp_path: Path) -> None:
    from madrigal.verbs.systems import load_recipe

    folder = recordings(tmp_path / "music", 16)
    (folder / "04.txt").unlink()
    words = [f"data={folder}", "model.audio.sample_rate=4000", "plan.valid_frac=0.3", "plan.num_train_steps=1"]
    made = load_recipe("mulan/tiny", words).trainer(tmp_path / "run").train()
    wanted = {Path(str(made.data.valid.dataset.files[index])).name for index in made.data.valid.indices}
    report, _ = evaluate_mulan(tmp_path / "run")
    assert report.pairs == len(wanted)
    assert "04.wav" not in wanted
    assert {Path(name).name for hit in report.hits for name in hit.found} <= wanted
