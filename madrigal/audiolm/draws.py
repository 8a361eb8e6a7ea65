"""How the stages of one generation draw: each with its sampling, and with noise of its own for every row and window."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from madrigal.engine.randomness import seed_for
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling

Context = tuple[Tensor, Tensor]
Samplings = Sampling | dict[str, Sampling] | None
"""One for all stages, or by the names of stages."""

STAGES = ("semantic", "coarse", "fine")

_LIKE_THE_PROMPT = Sampling(temperature=0.5, recall=0.5)
SPEECH = {"semantic": Sampling(temperature=0.8), "coarse": _LIKE_THE_PROMPT, "fine": _LIKE_THE_PROMPT}
"""How each stage draws where nothing is said about it: what `madrigal generate`, `evaluate` and the studio do."""
MUSIC = {stage: Sampling(temperature=degree) for stage, degree in zip(STAGES, (0.8, 0.9, 0.8), strict=True)}
"""The same for music from a text."""


@dataclass(frozen=True)
class Draws:
    """A seed for each row, and by stage the sampling and the context (none: nothing conditions it)."""

    seeds: list[int]
    sampling: dict[str, Sampling | None] = field(default_factory=dict)
    contexts: dict[str, Context | None] = field(default_factory=dict)

    def of(self, stage: str, window: int) -> dict[str, Any]:
        """What a wrapper's `decode` wants to know for one window."""
        return {
            "sampling": self.sampling.get(stage),
            "seeds": seeds_for(stage, self.seeds, window),
            "context": self.contexts.get(stage),
        }


def seeds_for(stage: str, seeds: list[int], number: int) -> list[int]:
    """Each row's seed for one window of one stage: the same noise in two of them would tie what they draw."""
    return [seed_for(seed, stage, number) for seed in seeds]


def by_stage(sampling: Samplings) -> dict[str, Sampling | None]:
    """The sampling of every stage; a name that is no stage's is refused."""
    named = sampling if isinstance(sampling, dict) else dict.fromkeys(STAGES, sampling)
    unknown = set(named) - set(STAGES)
    if unknown:
        raise UserError(f"There is no stage {min(unknown)!r} to sample from; they are semantic, coarse and fine.")
    wrong = next((how for how in named.values() if how is not None and not isinstance(how, Sampling)), None)
    if wrong is not None:
        raise UserError(f"sampling is {wrong!r}; give a Sampling, such as Sampling(temperature=0.5).")
    return {stage: named.get(stage) for stage in STAGES}


def drawn_with(sampling: Samplings, seed: int) -> str:
    """A sentence for a report: the temperature of every stage, and what else was chosen."""
    stages = []
    for stage, how in by_stage(sampling).items():
        chosen = {} if how is None else how.model_dump(exclude_defaults=True)
        options = {"temperature": (how or Sampling()).temperature, **chosen}
        stages.append(f"{stage} with {', '.join(f'{name} {value:g}' for name, value in options.items())}")
    return f"Drawn with seeds from {seed} on: {'; '.join(stages)}."
