"""What a step does: turns, their gradients, their batches, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from toys import GanTrainer, RegressionTrainer, ToyGan, ToyRegression, assert_identical, make, waves, whole_state

from madrigal.engine.feed import Batch
from madrigal.engine.trainer import Figures, Terms
from madrigal.engine.turn import Turn


class Watched(GanTrainer):
    """Notes what is so while each turn's loss is computed, and after it."""

    def __init__(self, model: ToyGan, **options: Any) -> None:
        self.notes: list[tuple[int, str, dict[str, Any]]] = []
        super().__init__(model, **options)

    def loss(self, turn: str, batch: Batch) -> Terms:
        own = next(t for t in self.turn_states if t.name == turn)
        wanted = {id(p) for p in own.trainable}
        note = {
            "wants": {n for n, p in self.model.named_parameters() if p.requires_grad},
            "own": {n for n, p in self.model.named_parameters() if id(p) in wanted},
            "generated": self.generated,
            "grads": {n for n, p in self.model.named_parameters() if p.grad is not None},
            "audio": batch["audio"].clone(),
        }
        self.notes.append((self.step, turn, note))
        return super().loss(turn, batch)


def test_turns_are_taken_in_order_from_their_start_at_their_cadence(tmp_path: Path) -> None:
    trainer = make(Watched, tmp_path)
    for _ in range(7):
        trainer.train_step()
    assert [[turn for step, turn, _ in trainer.notes if step == n] for n in range(7)] == [
        ["generator", "judge"],
        ["generator"],
        ["generator", "critic"],
        ["generator", "critic", "judge"],
        ["generator", "critic"],
        ["generator", "critic"],
        ["generator", "critic", "judge"],
    ]


def test_AT11_a_turn_asks_for_its_own_gradients_and_the_generator_runs_once(tmp_path: Path) -> None:
    trainer = make(Watched, tmp_path, grad_accum_every=2)
    before = {n: p.requires_grad for n, p in trainer.model.named_parameters()}
    for _ in range(4):
        trainer.train_step()
    assert trainer.generated == 4 * 2
    assert all(note["wants"] == note["own"] for _, _, note in trainer.notes)
    assert all(note["grads"] <= note["own"] for _, _, note in trainer.notes)
    assert {n: p.requires_grad for n, p in trainer.model.named_parameters()} == before
    assert all(p.grad is None for p in trainer.model.parameters())


def test_AT11_what_moves_by_statistics_moves_once_a_step(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, grad_accum_every=3)
    commits = [trainer.train_step()["generator/commits"] for _ in range(4)]
    assert commits == [1.0, 2.0, 3.0, 4.0]


def test_AT10_a_turn_is_clipped_by_the_norm_of_its_own_gradients(tmp_path: Path) -> None:
    class Loud(GanTrainer):
        """The discriminators' gradients would drown the generator's."""

        clipped: dict[str, float]

        def weight(self, turn: str, term: str) -> float:
            return 1e4 if term == "hinge" else 1e-3

    trainer = make(Loud, tmp_path, max_grad_norm=0.5)
    norms: dict[str, float] = {}
    for turn in trainer.turn_states:
        step = turn.optimizer.step

        def noted(turn: Any = turn, step: Any = step) -> None:
            norms[turn.name] = float(torch.nn.utils.get_total_norm([p.grad for p in turn.trainable]))
            step()

        turn.optimizer.step = noted
    for _ in range(4):
        figures = trainer.train_step()
    assert figures["generator/grad_norm"] < 0.5
    assert norms["generator"] == pytest.approx(figures["generator/grad_norm"], rel=1e-4)
    assert figures["critic/grad_norm"] > 100
    assert norms["critic"] == pytest.approx(0.1, rel=1e-3)
    assert norms["judge"] == pytest.approx(figures["judge/grad_norm"], rel=1e-4)


def test_AT17_no_clipping_is_said_by_none(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, max_grad_norm=None, best_metric=None, accelerator=None, recipe=None)
    assert trainer.train_step()["grad_norm"] > 0


def test_terms_are_weighted_added_and_logged_by_name(tmp_path: Path) -> None:
    figures = make(GanTrainer, tmp_path).train_step()
    total = figures["generator/mse"] + 0.1 * figures["generator/adversarial"] + 0.5 * figures["generator/heard"]
    assert figures["generator/loss"] == pytest.approx(total, rel=1e-5)
    assert {"judge/hinge", "judge/penalty", "judge/loss", "judge/grad_norm", "judge/lr"} <= figures.keys()
    assert not any(name.startswith("critic/") for name in figures)


def test_accumulation_is_the_mean_over_the_whole(tmp_path: Path) -> None:
    small = make(RegressionTrainer, tmp_path / "a", batch_size=3, grad_accum_every=4)
    large = make(RegressionTrainer, tmp_path / "b", batch_size=12, grad_accum_every=1)
    for _ in range(5):
        assert small.train_step()["loss"] == pytest.approx(large.train_step()["loss"], rel=1e-5)
    assert torch.allclose(small.model.line.weight, large.model.line.weight, atol=1e-6)
    assert torch.equal(torch.cat(small.seen), torch.cat(large.seen))


def test_turns_share_a_batch_or_draw_their_own_as_the_trainer_says(tmp_path: Path) -> None:
    class Apart(Watched):
        turns_share_batch = False

    together, apart = make(Watched, tmp_path / "a"), make(Apart, tmp_path / "b")
    for _ in range(8):
        together.train_step()
        apart.train_step()

    def drawn(trainer: Watched, turn: str) -> list[Tensor]:
        return [note["audio"] for _, name, note in trainer.notes if name == turn]

    shared = drawn(together, "generator")
    assert all(torch.equal(a, b) for a, b in zip(shared[2:], drawn(together, "critic"), strict=True))
    fresh = drawn(apart, "generator") + drawn(apart, "critic") + drawn(apart, "judge")
    equal = [(i, j) for i in range(len(fresh)) for j in range(i) if torch.equal(fresh[i], fresh[j])]
    assert not equal
    # A turn that is taken every third step still goes through the whole of the data.
    judged = torch.cat(drawn(apart, "judge"))[:, 0]
    assert len({tuple(row.tolist()) for row in judged}) == len(judged) == 3 * 4


def test_batches_of_each_turn_are_the_same_wherever_a_run_is_resumed(tmp_path: Path) -> None:
    class Apart(GanTrainer):
        turns_share_batch = False

        def turns(self) -> list[Turn]:
            return super().turns()[::-1]

    unbroken = make(Apart, tmp_path / "a")
    for _ in range(8):
        unbroken.train_step()
        if unbroken.step == 4:
            unbroken.save(tmp_path / "middle")
    # At step 4 the judge is not taken: the turns ask for their batches in another order than at step 0.
    resumed = make(Apart, tmp_path / "b")
    resumed.load(tmp_path / "middle")
    for _ in range(4):
        resumed.train_step()
    assert_identical(whole_state(resumed), whole_state(unbroken))


def test_a_parameter_that_a_step_does_not_use_stays(tmp_path: Path) -> None:
    model = ToyRegression()
    model.unused = nn.Parameter(torch.ones(3, 3))
    trainer = make(RegressionTrainer, tmp_path, model=model, wd=0.1)
    trainer.train_step()
    assert torch.equal(model.unused, torch.ones(3, 3))


def test_a_step_that_an_error_cut_short_leaves_no_gradients_to_the_next(tmp_path: Path) -> None:
    class Stumbling(RegressionTrainer):
        stumbles = False

        def loss(self, turn: str, batch: Batch) -> Terms:
            if self.stumbles and len(self.seen) % 2 == 1:
                raise OSError("a cable was pulled")
            return super().loss(turn, batch)

    trainers = [make(Stumbling, tmp_path / name, grad_accum_every=2) for name in "ab"]
    trainers[0].stumbles = True
    with pytest.raises(OSError, match="cable"):
        trainers[0].train_step()
    trainers[0].stumbles = False
    assert trainers[0].step == 0
    for trainer in trainers:
        trainer.train_step()
    assert_identical(whole_state(trainers[0]), whole_state(trainers[1]))


def test_parameters_keep_the_order_that_the_trainer_gave_them_in(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    generator = trainer.turn_states[0]
    names = [n for n, p in trainer.model.named_parameters() if any(p is q for q in generator.trainable)]
    assert [n for n in generator.parameters if generator.parameters[n].requires_grad] == names
    assert len(names) == 4


def test_dropout_and_noise_depend_on_seed_and_step_alone(tmp_path: Path) -> None:
    losses = []
    for name, seed, disturb in (("a", 0, False), ("b", 0, True), ("c", 1, False)):
        trainer = make(GanTrainer, tmp_path / name, seed=seed)
        if disturb:
            torch.manual_seed(99)
        losses.append([trainer.train_step()["generator/loss"] for _ in range(3)])
    assert losses[0] == losses[1] != losses[2]


def test_X14_micro_batches_do_not_wait_for_the_device(tmp_path: Path) -> None:
    class Waits(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    counts = []
    for accumulation in (1, 5):
        trainer = make(RegressionTrainer, tmp_path / str(accumulation), grad_accum_every=accumulation, batch_size=2)
        trainer.train_step()
        with Waits() as waits:
            trainer.train_step()
        counts.append(waits.count)
    assert counts[0] == counts[1]


def test_AT21_a_conditioner_given_to_a_turn_is_trained_and_saved_with_its_codebook(tmp_path: Path) -> None:
    class Conditioned(ToyRegression):
        def __init__(self) -> None:
            super().__init__()
            self.conditioner = nn.Embedding(4, 8)
            self.conditioner.register_buffer("codebook", torch.randn(4, 8))

        def forward(self, x: Tensor) -> Tensor:
            codes = torch.cdist(x, self.conditioner.codebook).argmin(-1)
            return super().forward(x) + self.conditioner(codes)

    trainer = make(RegressionTrainer, tmp_path / "a", model=Conditioned())
    before = trainer.model.conditioner.weight.detach().clone()
    trainer.train_step()
    assert not torch.equal(before, trainer.model.conditioner.weight)
    trainer.save(tmp_path / "checkpoint")
    other = make(RegressionTrainer, tmp_path / "b", model=Conditioned())
    other.model.conditioner.codebook.zero_()
    other.load(tmp_path / "checkpoint")
    assert_identical(whole_state(other), whole_state(trainer))


def test_what_a_trainer_says_after_a_turn_is_logged_and_draws_the_same_numbers(tmp_path: Path) -> None:
    class Drawing(RegressionTrainer):
        def after_turn(self, turn: str, applied: bool) -> Figures:
            return {"drawn": float(torch.rand(()))}

    runs = [make(Drawing, tmp_path / str(n), grad_accum_every=n, dataset=waves(40)) for n in (1, 2)]
    drawn = [[run.train_step()["drawn"] for _ in range(3)] for run in runs]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 3
