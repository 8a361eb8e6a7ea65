"""Distillation: a student that goes in few steps where its teacher goes in many."""

from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_flows import Halves, Rows, distiller, ids, model

from madrigal.errors import UserError
from madrigal.voicebox.filling import fill, flow_under
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.solvers import solve


def test_a_student_comes_nearer_than_its_teacher_in_as_many_steps(tmp_path: Path) -> None:
    teacher = model(fresh=True)
    torch.nn.init.normal_(teacher.to_flow.weight, std=0.5)
    run = distiller(
        tmp_path,
        teacher=teacher,
        teacher_cond_scale=1.0,
        num_train_steps=60,
        batch_size=8,
        lr=5e-3,
        save_results_every=1000,
    )
    before = run.validation()
    assert before["valid/student"] == pytest.approx(before["valid/teacher"], rel=1e-4)  # it begins as its teacher
    run.train()
    after = run.validation()
    assert after["valid/teacher"] == pytest.approx(before["valid/teacher"], rel=1e-4)
    assert after["valid/student"] < 0.7 * after["valid/teacher"]


def test_a_figure_weighs_as_much_as_the_frames_that_it_is_a_mean_of(tmp_path: Path) -> None:
    run = distiller(tmp_path)
    torch.manual_seed(0)
    batch = run.collate([Rows()[index] for index in range(6)])
    spans = []
    lesson = run.wrapper.lesson
    run.wrapper.lesson = lambda *given: spans.append(lesson(*given)) or spans[-1]  # type: ignore[assignment,func-returns-value]
    figures = run.validate(batch)
    line, ends = (int(each.made.sum()) for each in spans)
    assert line != ends  # else this would prove nothing
    assert [figures[name][1] for name in ("loss", "student", "teacher")] == [line, ends, ends]


def test_where_speech_is_given_its_flow_is_known_and_without_guidance_nothing_else_is_computed() -> None:
    teacher, x1, noise = model(), torch.randn(1, 5, 6), torch.randn(1, 5, 6)
    given = torch.tensor([[True, True, False, False, False]])
    told: dict[str, Any] = {"context": x1, "context_mask": given, "ids": ids(1, 5), "mask": torch.ones_like(given)}
    conditions = []
    plain = teacher.condition
    teacher.condition = lambda *shape, **words: conditions.append(words) or plain(*shape, **words)  # type: ignore[assignment,func-returns-value]
    end = solve(flow_under(teacher, told, noise), noise, steps=3, method="euler").x
    assert len(conditions) == 1
    torch.testing.assert_close(end[given], x1[given])
    assert not torch.allclose(end[~given], x1[~given], atol=1e-2)


def test_a_student_knows_its_own_way_alone(tmp_path: Path) -> None:
    run = distiller(tmp_path, num_train_steps=2, sway=-0.5).train()
    student = VoiceBox.from_pretrained(tmp_path)
    assert (student.config.distilled_steps, student.config.distilled_sway) == (2, -0.5)
    filled = fill(student, [6], ids=ids(1, 6))
    assert filled.evaluations == 2
    for steps in (0, 8):
        with pytest.raises(UserError, match="distilled to steps=2"):
            fill(student, [6], ids=ids(1, 6), steps=steps)
    with pytest.raises(UserError, match="cond_drop_prob"):
        fill(student, [6], ids=ids(1, 6), cond_scale=2.0)
    with pytest.raises(UserError, match="distilled itself"):
        distiller(tmp_path / "more", teacher=student, teacher_cond_scale=1.0)
    assert not any(p.requires_grad for p in run.teacher.parameters())


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"teacher_cond_scale": 2.0, "teacher": model()}, "cond_drop_prob"),
        ({"sway": 5.0}, "sway is"),
        ({"teacher_method": "adaptive"}, "teacher_method"),
        ({"sample_steps": 4}, "sample_steps"),
    ],
)
def test_a_refused_distiller_leaves_the_run_that_it_was_to_replace(
    wrong: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    distiller(tmp_path, num_train_steps=2).train()
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(UserError, match=sentence):
        distiller(tmp_path, **wrong, overwrite=True)
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_a_student_goes_on_with_its_teacher(tmp_path: Path) -> None:
    distiller(tmp_path, num_train_steps=2).train()
    with pytest.raises(UserError, match="another teacher"):
        distiller(tmp_path, num_train_steps=2, teacher=model(seed=5, cond_drop_prob=0.2), resume=True)


def test_a_student_hears_what_its_teacher_heard(tmp_path: Path) -> None:
    teacher = model(cond_drop_prob=0.2)
    teacher.std.fill_(1.0)
    distiller(tmp_path, teacher=teacher, features=Halves(), num_train_steps=1)
    with pytest.raises(UserError, match="not normalised as those"):
        distiller(tmp_path / "other", teacher=teacher, features=Halves(level=5.0))
