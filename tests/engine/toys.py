"""Two small trainers that use everything the engine has, and what tests ask of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import Dataset

from madrigal.engine.artifacts import ORIGINAL, Audio, Sample
from madrigal.engine.feed import Batch
from madrigal.engine.plan import Plan
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.trainer import Figures, Terms, Trainer
from madrigal.engine.turn import Turn

WIDTH = 8
RATE = 1000


def waves(count: int = 50, first: int = 0) -> list[Tensor]:
    """`count` different waves [samples]."""
    return [torch.randn(WIDTH, generator=torch.Generator().manual_seed(first + i)) * 0.3 for i in range(count)]


class Measured(Dataset[Tensor]):
    """Waves that claim to be of many lengths: 0.1 to 1.5 seconds, ten tokens a second."""

    def __init__(self, count: int) -> None:
        self.items = waves(count)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tensor:
        return self.items[index]

    def tokens(self, index: int) -> int:
        return 1 + index * 7 % 15

    def seconds(self, index: int) -> float:
        return self.tokens(index) / 10


class ToyConfig(BaseModel):
    hidden: int = 16


class ToyGan(nn.Module, Pretrained):
    """A generator with dropout and a codebook that its trainer moves, two discriminators, a frozen part."""

    Config = ToyConfig
    left_out = ("critic", "judge", "ears")

    def __init__(self, config: ToyConfig | None = None) -> None:
        super().__init__()
        self.config = config or ToyConfig()
        hidden = self.config.hidden
        self.generator = nn.Sequential(nn.Linear(WIDTH, hidden), nn.Dropout(0.1), nn.GELU(), nn.Linear(hidden, WIDTH))
        self.codebook = nn.Parameter(torch.zeros(4, WIDTH), requires_grad=False)
        self.register_buffer("commits", torch.zeros((), dtype=torch.int64))
        self.critic = nn.Sequential(nn.Linear(WIDTH, hidden), nn.GELU(), nn.Linear(hidden, 1))
        self.judge = nn.Sequential(nn.Linear(WIDTH, hidden), nn.GELU(), nn.Linear(hidden, 1))
        self.ears = nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4))


class GanTrainer(Trainer):
    """Three turns: the generator; a critic that starts at step 2; a judge at every third step."""

    system = "toy"
    unit = "items"
    model: ToyGan

    def __init__(self, model: ToyGan, **options: Any) -> None:
        self.generated = 0
        super().__init__(model, **options)

    def turns(self) -> list[Turn]:
        model = self.model
        generator = {n: p for n, p in model.named_parameters() if not n.startswith(("critic", "judge"))}
        return [
            Turn("generator", generator, max_grad_norm=self.plan.max_grad_norm),
            Turn("critic", dict(model.critic.named_parameters("critic")), start=2, lr=2e-3, max_grad_norm=0.1),
            Turn("judge", dict(model.judge.named_parameters("judge")), every=3, scheduler="constant"),
        ]

    def frozen(self) -> list[nn.Module]:
        return [self.model.ears]

    def averaged(self) -> dict[str, nn.Module]:
        return {"": self.model}

    def weight(self, turn: str, term: str) -> float:
        return {"adversarial": 0.1, "heard": 0.5}.get(term, 1.0)

    def generate(self, batch: Batch) -> Tensor:
        self.generated += 1
        return self.model.generator(batch["audio"][:, 0])

    def loss(self, turn: str, batch: Batch) -> Terms:
        model, real = self.model, batch["audio"][:, 0]
        if turn == "generator":
            fake = self.generate(batch)
            batch["fake"] = fake.detach()
            return {
                "mse": (fake - real).square().mean(),
                "adversarial": -model.critic(fake).mean() - model.judge(fake).mean(),
                "heard": (model.ears(fake) - model.ears(real)).abs().mean(),
            }
        if "fake" not in batch:
            with torch.no_grad():
                batch["fake"] = self.generate(batch)
        discriminator = model.critic if turn == "critic" else model.judge
        terms = {"hinge": (1 - discriminator(real)).relu().mean() + (1 + discriminator(batch["fake"])).relu().mean()}
        if turn == "judge":
            real = real.clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
            terms["penalty"] = (gradient.norm(dim=-1) - 1).square().mean()
        return terms

    def first_step(self, batches: list[Batch]) -> None:
        self.model.codebook.copy_(torch.cat([b["audio"][:, 0] for b in batches])[:4] + torch.rand(4, WIDTH))

    def after_turn(self, turn: str, applied: bool) -> Figures:
        if turn != "generator" or not applied:
            return {}
        self.model.commits += 1
        self.model.codebook.data.add_(torch.rand(4, WIDTH) * 0.01)
        return {"commits": float(self.model.commits)}

    def validate(self, batch: Batch) -> Terms:
        real = batch["audio"][:, 0]
        return {"mse": (self.model.generator(real) - real).square().mean()}

    def sample(self, batch: Batch) -> list[Sample]:
        made = self.model.generator(batch["audio"][:, 0])
        return [
            {ORIGINAL: Audio(wave, RATE), "reconstruction": Audio(again, RATE)}
            for wave, again in zip(batch["audio"], made, strict=True)
        ]


class ToyRegression(nn.Module):
    """One matrix and one bias."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x)


class RegressionTrainer(Trainer):
    """One turn; `poison` maps a step to what its loss is multiplied by, `seen` holds the batches."""

    system = "regression"

    def __init__(self, model: nn.Module, **options: Any) -> None:
        self.poison: dict[int, float] = {}
        self.seen: list[Tensor] = []
        super().__init__(model, **options)

    def loss(self, turn: str, batch: Batch) -> Terms:
        x = batch["audio"][:, 0]
        if self.model.training:
            self.seen.append(x.clone())
        return {"mse": (self.model(x) - 2 * x).square().mean() * self.poison.get(self.step, 1.0)}


def make(kind: type[Trainer], folder: str | Path, model: nn.Module | None = None, **options: Any) -> Any:
    """A toy trainer in `folder`; options are fields of the plan or keywords of the trainer."""
    torch.manual_seed(0)
    model = model or (ToyGan() if issubclass(kind, GanTrainer) else ToyRegression())
    plan = {
        "num_train_steps": 12,
        "lr": 1e-2,
        "warmup_steps": 2,
        "scheduler": "cosine",
        "valid_frac": 0.2,
        "save_results_every": 5,
        "save_model_every": 4,
        "ema_beta": 0.9,
        "ema_update_after_step": 3,
        "ema_update_every": 2,
        **{name: value for name, value in options.items() if name in Plan.model_fields},
    }
    if "num_train_epochs" in plan:
        del plan["num_train_steps"]
    rest = {name: value for name, value in options.items() if name not in Plan.model_fields}
    if "train_dataloader" not in rest:
        rest.setdefault("dataset", waves())
    return kind(model, plan=Plan(**plan), results_folder=folder, **rest)


def whole_state(trainer: Trainer) -> dict[str, Tensor]:
    """Everything that later steps depend on, as it would lie in a checkpoint."""
    state = {f"model/{n}": t.detach().clone() for n, t in trainer.model.state_dict().items()}
    if trainer.ema is not None:
        state |= {f"ema/{n}": t.clone() for n, t in trainer.ema.state_dict().items()}
    for turn in trainer.turn_states:
        state |= {f"optimizer/{turn.name}/{n}": t.clone() for n, t in turn.state_tensors().items()}
    return state


def saved_state(checkpoint: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder."""
    return {f"{p.stem}/{n}": t for p in sorted(checkpoint.glob("*.safetensors")) for n, t in load_file(p).items()}


def assert_identical(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """The same names, and every tensor equal to the bit."""
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different, f"{different} differ"
