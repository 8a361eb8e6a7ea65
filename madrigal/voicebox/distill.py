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
from madrigal.voicebox.filling import check_guidance, flow_under
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper, Outcome, mean_over
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.plans import DistillPlan, VoiceBoxPlan
from madrigal.voicebox.solvers import between, solve, time_grid
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
        self.teacher.to(self.device)
        self.times = time_grid(self.plan.steps, self.plan.sway).to(self.device, torch.float32)
        update = {"distilled_steps": self.plan.steps, "distilled_sway": self.plan.sway, "cond_drop_prob": 0.0}
        student.config = teacher.config.model_copy(update=update)

    def check(self, plan: VoiceBoxPlan) -> None:
        assert isinstance(plan, DistillPlan)
        super().check(plan)
        if self.teacher.config.distilled_steps is not None:
            raise UserError(
                "This teacher was distilled itself and knows few steps only: name the model that taught it."
            )
        check_guidance(self.teacher.config, plan.teacher_cond_scale)
        time_grid(plan.steps, plan.sway)

    def _learned_from(self) -> Fingerprints:
        teacher = fingerprint_of(self.teacher.config.model_dump(mode="json"), self.teacher.exported())
        return {**super()._learned_from(), "teacher": teacher}

    def loss(self, turn: str, batch: Batch) -> Terms:
        return {"line": self._line(*self.heard(batch), training=True).loss}

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """Beside the loss: how far student and teacher end from where the teacher's small steps lead, all from noise.

        `teacher` goes in the student's steps there, and the student has to come nearer.
        """
        x1, lengths, ids = self.heard(batch)
        line, plan = self._line(x1, lengths, ids, training=False), self.plan
        lesson = self.wrapper.lesson(x1, lengths)
        told, noise = self.wrapper.conditions(x1, lengths, ids, lesson, training=False), lesson.noise
        teacher = flow_under(self.teacher, told, noise, plan.teacher_cond_scale)
        small: Any = {"steps": plan.steps * plan.teacher_steps, "method": plan.teacher_method}
        right = solve(teacher, noise, **small, sway=plan.sway).x
        figures: dict[str, Counted] = {"loss": (line.loss, line.frames)}
        for name, flow in {"student": flow_under(self.model, told, noise), "teacher": teacher}.items():
            end = solve(flow, noise, steps=plan.steps, method="euler", sway=plan.sway).x
            far = mean_over((end - right).square().mean(-1), lesson.made)
            figures[name] = (far.loss, far.frames)
        return figures

    def _line(self, x1: Tensor, lengths: Tensor, ids: Tensor | None, *, training: bool) -> Outcome:
        """The mean square error of the lines that lead through one interval of each row."""
        lesson, plan = self.wrapper.lesson(x1, lengths), self.plan
        # Spread like the times, so that a batch has of every interval.
        which = (lesson.times * plan.steps).long().clamp(max=plan.steps - 1)
        start, end = self.times[which], self.times[which + 1]
        lesson = lesson._replace(times=start)
        told = self.wrapper.conditions(x1, lengths, ids, lesson, training=training)
        here = self.wrapper.point(x1, lesson)
        with torch.no_grad():
            flow = flow_under(self.teacher, told, lesson.noise, plan.teacher_cond_scale)
            there = between(flow, here, start, end, method=plan.teacher_method, steps=plan.teacher_steps)
        line = (there - here) / (end - start)[:, None, None]
        found = self.model(here, times=start, **told)
        return mean_over((found - line).square().mean(-1), lesson.made & told["mask"])
