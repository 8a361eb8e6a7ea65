"""A student that goes in few steps where its teacher goes in many.

The way from noise to speech is cut into a few intervals. A recording on its way is put at the start of one of them, the
teacher goes from there to its end in small steps, and the student learns the straight line that leads to the same
place. Each interval is a task of its own with one right answer, so the student needs one evaluation for each of them.
The teacher may go with guidance; the student then has it built in.
"""

import copy
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from madrigal.engine.feed import Batch
from madrigal.engine.learned import Fingerprints
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Terms
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.voicebox.filling import check_guidance
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper, Lesson, Outcome, mean_over
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.plans import DistillPlan
from madrigal.voicebox.solvers import Flow, between, solve, time_grid
from madrigal.voicebox.training import VoiceBoxTrainer


class VoiceBoxDistiller(VoiceBoxTrainer):
    """Trains a copy of `teacher` to go in `plan.steps` steps of one evaluation each; data as for `VoiceBoxTrainer`."""

    system: ClassVar[str] = "voicebox-distill"
    Plan: ClassVar[type[DistillPlan]] = DistillPlan
    plan: DistillPlan

    def __init__(
        self,
        teacher: VoiceBox,
        features: Any = None,
        *,
        plan: DistillPlan | None = None,
        results_folder: str | Path = "./results",
        **options: Any,
    ) -> None:
        self.teacher = teacher.eval().requires_grad_(False)
        student = copy.deepcopy(teacher).requires_grad_(True)
        wrapper = ConditionalFlowMatcherWrapper(student, features)
        super().__init__(wrapper, plan=plan, results_folder=results_folder, **options)
        self._check_teacher()
        self.teacher.to(self.device)
        self.times = time_grid(self.plan.steps, self.plan.sway).to(self.device, torch.float32)
        update = {"distilled_steps": self.plan.steps, "distilled_sway": self.plan.sway, "cond_drop_prob": 0.0}
        student.config = teacher.config.model_copy(update=update)

    def _check_teacher(self) -> None:
        if self.teacher.config.distilled_steps is not None:
            raise UserError(
                "This teacher was distilled itself and knows few steps only: name the model that taught it."
            )
        told = torch.zeros(1, 1, dtype=torch.int64)
        check_guidance(self.teacher, self.plan.teacher_cond_scale, told.bool(), told)

    def _learned_from(self) -> Fingerprints:
        teacher = fingerprint_of(self.teacher.config.model_dump(mode="json"), self.teacher.exported())
        return {**super()._learned_from(), "teacher": teacher}

    def _sampling(self) -> dict[str, Any]:
        return {"seed": self.plan.seed}

    def loss(self, turn: str, batch: Batch) -> Terms:
        return {"line": self._line(*self.heard(batch), training=True).loss}

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """Beside the loss: how far student and teacher end from where the teacher's small steps lead, all from noise.

        `few` is the teacher in the student's steps, which the student has to beat.
        """
        x1, lengths, ids = self.heard(batch)
        line = self._line(x1, lengths, ids, training=False)
        lesson = self.wrapper.lesson(x1, lengths)
        made = lesson.made
        flows = [self._flow(model, x1, lengths, ids, lesson, training=False) for model in (self.model, self.teacher)]
        plan, noise = self.plan, lesson.noise
        right = solve(
            flows[1], noise, steps=plan.steps * plan.teacher_steps, method=plan.teacher_method, sway=plan.sway
        )
        figures = {"loss": line.loss}
        for name, flow in zip(("end", "few"), flows, strict=True):
            there = solve(flow, noise, steps=plan.steps, method="euler", sway=plan.sway).x
            figures[name] = mean_over((there - right.x).square().mean(-1), made).loss
        return {name: (value, line.frames) for name, value in figures.items()}

    def _line(self, x1: Tensor, lengths: Tensor, ids: Tensor | None, *, training: bool) -> Outcome:
        """The mean square error of the lines that lead through one interval of each row."""
        lesson = self.wrapper.lesson(x1, lengths)
        # Spread like the times, so that a batch has of every interval.
        which = (lesson.times * self.plan.steps).long().clamp(max=self.plan.steps - 1)
        start, end = self.times[which], self.times[which + 1]
        lesson = lesson._replace(times=start)
        given = self.wrapper.conditions(x1, lengths, ids, lesson, training=training)
        here = self.wrapper.point(x1, lesson)
        with torch.no_grad():
            flow = self._taught(self.teacher, x1, lesson, given, self.plan.teacher_cond_scale)
            options: Any = {"method": self.plan.teacher_method, "steps": self.plan.teacher_steps}
            there = between(flow, here, start, end, **options)
        line = (there - here) / (end - start)[:, None, None]
        found = self.model(here, times=start, **given)
        return mean_over((found - line).square().mean(-1), lesson.made & given["mask"])

    def _flow(
        self, model: VoiceBox, x1: Tensor, lengths: Tensor, ids: Tensor | None, lesson: Lesson, *, training: bool
    ) -> Flow:
        given = self.wrapper.conditions(x1, lengths, ids, lesson, training=training)
        return self._taught(model, x1, lesson, given, self.plan.teacher_cond_scale if model is self.teacher else 1.0)

    def _taught(self, model: VoiceBox, x1: Tensor, lesson: Lesson, given: dict[str, Any], cond_scale: float) -> Flow:
        """The flow that a model finds; where speech is given it is known."""
        shape = tuple(x1.shape[:2])
        condition, nothing = model.condition(shape, **given), model.condition(shape, mask=given["mask"])
        known, made = x1 - lesson.noise, lesson.made[..., None]

        def flow(x: Tensor, times: Tensor) -> Tensor:
            return torch.where(made, model.guided_flow(x, times, condition, nothing, cond_scale), known)

        return flow
