"""An average of the weights, kept on every rank."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from madrigal.engine.plan import Plan


class ExponentialMovingAverage:
    """Averages parameters and copies buffers (counts and other bookkeeping) of one or more modules.

    Parts of them that lie in `without` (frozen ones) have no average. A tensor with two names is averaged once.
    Until `update_after_step` it equals the online weights; after that, every `update_every`-th step moves it
    by `1 - beta` of the distance. `swapped()` puts the average in the place of the weights for as long as a
    block lasts, and gives the weights back bit by bit.
    """

    def __init__(
        self,
        modules: dict[str, nn.Module],
        *,
        without: Sequence[nn.Module] = (),
        beta: float = 0.995,
        update_after_step: int = 500,
        update_every: int = 10,
    ) -> None:
        self.beta = beta
        self.update_after_step = update_after_step
        self.update_every = update_every
        self._parameters, aliases = _named(modules, "named_parameters", without)
        self._buffers, more = _named(modules, "named_buffers", without)
        self._aliases = aliases | more
        self._average = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._copies = {name: b.detach().clone() for name, b in self._buffers.items()}
        self._is_online = False  # it equals the online weights, and is copied from them when somebody asks

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after `step` finished steps."""
        if step <= self.update_after_step:
            self._is_online = True
            if step == self.update_after_step:
                self._settle()
            return
        self._is_online = False
        if step % self.update_every == 0:
            online = [self._parameters[name].detach() for name in self._average]
            torch._foreach_lerp_(list(self._average.values()), online, 1.0 - self.beta)
            self._copy_buffers()

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the modules hold the average."""
        self._settle()
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Tensor]:
        """The average by name, as the modules' own state dict would name it."""
        self._settle()
        own = {**self._average, **self._copies}
        return own | {alias: own[name].clone() for alias, name in self._aliases.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._is_online = False
        for name, tensor in {**self._average, **self._copies}.items():
            tensor.copy_(state[name])

    @torch.no_grad()
    def _settle(self) -> None:
        if self._is_online:
            for name, parameter in self._parameters.items():
                self._average[name].copy_(parameter)
            self._copy_buffers()
            self._is_online = False

    def _copy_buffers(self) -> None:
        for name, buffer in self._buffers.items():
            self._copies[name].copy_(buffer)

    def _swap(self) -> None:
        for own, held in ((self._parameters, self._average), (self._buffers, self._copies)):
            for name, tensor in own.items():
                # The storages trade places, so nothing is rounded and nothing is copied.
                tensor.data, held[name] = held[name], tensor.data


def average_by(
    plan: Plan, modules: dict[str, nn.Module], *, without: Sequence[nn.Module] = ()
) -> ExponentialMovingAverage | None:
    """The average that a plan asks for."""
    if not plan.use_ema:
        return None
    return ExponentialMovingAverage(
        modules,
        without=without,
        beta=plan.ema_beta,
        update_after_step=plan.ema_update_after_step,
        update_every=plan.ema_update_every,
    )


def _named(
    modules: dict[str, nn.Module], kind: str, without: Sequence[nn.Module]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor by its first name, and further names of it; buffers that are not saved are no weights."""
    found: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first_names: dict[int, str] = {}
    left_out = {id(t) for part in without for t in part.state_dict(keep_vars=True).values()}
    for prefix, module in modules.items():
        saved = set(module.state_dict(keep_vars=True))
        for name, tensor in getattr(module, kind)(remove_duplicate=False):
            if name not in saved or id(tensor) in left_out:
                continue
            full = f"{prefix}.{name}" if prefix else name
            first = first_names.setdefault(id(tensor), full)
            if first == full:
                found[full] = tensor
            else:
                aliases[full] = first
    return found, aliases
