"""Optimizers by name, with weight decay where it belongs."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

OptimizerName = Literal["auto", "adam", "adamw", "lion", "muon"]


def _loss_of(closure: Callable[[], float] | None) -> float | None:
    """What a closure, which makes the gradients anew, says of the loss."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum, decoupled decay (Chen et al. 2023, "Symbolic Discovery")."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        value = _loss_of(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return value

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        momentum = state["exp_avg"]
        direction = torch.lerp(parameter.grad, momentum, beta1).sign_()
        parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
        momentum.lerp_(parameter.grad, 1.0 - beta2)


class Muon(torch.optim.Optimizer):
    """Layers' matrices step along their momentum made orthogonal (Jordan et al. 2024), all else by AdamW.

    Steps of matrices are as long as AdamW's are (Liu et al. 2025, "Muon is Scalable"), so one rate serves both.
    """

    def __init__(self, matrices: list[dict[str, Any]], others: list[dict[str, Any]], *, lr: float, **adam: Any) -> None:
        super().__init__([*matrices, *others], {"lr": lr})
        halves: list[torch.optim.Optimizer] = []
        if matrices:
            halves.append(torch.optim.Muon(matrices, lr=lr, adjust_lr_fn="match_rms_adamw"))
        if others:
            halves.append(torch.optim.AdamW(others, lr=lr, **adam))
        self.halves = halves
        # One list of groups and one state for both halves: who sets a rate or reads a moment need not know of them.
        self.param_groups = [group for half in halves for group in half.param_groups]
        for half in halves:
            half.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        value = _loss_of(closure)
        for half in self.halves:
            half.step()
        return value


def build_optimizer(
    parameters: dict[str, nn.Parameter],
    *,
    name: OptimizerName = "auto",
    lr: float,
    wd: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.99),
    eps: float = 1e-8,
) -> torch.optim.Optimizer:
    """An optimizer over named parameters, in their given order.

    `auto` is Adam without decay and AdamW with it. What decays is decided by `decays`.
    """
    # One kernel over all parameters: on a CPU it saves most of the optimizer's time.
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters.values())
    if name == "muon":
        matrices = {name: p for name, p in parameters.items() if is_layer(name, p)}
        others = {name: p for name, p in parameters.items() if name not in matrices}
        return Muon(_groups(matrices, wd), _groups(others, wd), lr=lr, betas=betas, eps=eps, fused=fused)
    groups = _groups(parameters, wd)
    if name == "lion":
        return Lion(groups, lr=lr, betas=betas)
    adamw = name == "adamw" or (name == "auto" and wd > 0)
    kind = torch.optim.AdamW if adamw else torch.optim.Adam
    return kind(groups, lr=lr, betas=betas, eps=eps, fused=fused)


def _groups(parameters: dict[str, nn.Parameter], wd: float) -> list[dict[str, Any]]:
    """What decays and what does not."""
    decayed = [p for name, p in parameters.items() if decays(name, p)]
    plain = [p for name, p in parameters.items() if not decays(name, p)]
    return [{"params": params, "weight_decay": decay} for params, decay in ((decayed, wd), (plain, 0.0)) if params]


def is_layer(name: str, parameter: nn.Parameter) -> bool:
    """A matrix inside a stack of layers; tables of embeddings and heads over classes, lists of vectors, lie outside."""
    *owners, own = name.split(".")
    return own == "weight" and "layers" in owners and parameter.ndim == 2 and min(parameter.shape) > 1


_NEVER_DECAY = {"bias", "scale", "shift", "gain", "gamma", "beta", "alpha", "temperature", "norm"}


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Matrices, kernels and tables decay; biases, norms, scales and single vectors never do.

    By what a parameter is, not by how it is stored: the bias of a complex convolution is a pair, and a scale for each
    of two cases is a table.
    """
    *owners, own = [part for part in name.split(".") if not part.isdigit()]
    if _words(own) & _NEVER_DECAY or (owners and "norm" in _words(owners[-1])):
        return False
    # A layer's `weight` with one output is a matrix still; a vector of another name may have a batch of one.
    return parameter.ndim - (0 if own == "weight" else parameter.shape.count(1)) >= 2


def _words(part: str) -> set[str]:
    return {word.removesuffix("s") if word != "bias" else word for word in part.lower().split("_")}


def optimizer_state(optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: `"decoder.weight/exp_avg"` and so on."""
    return {
        f"{name}/{key}": torch.as_tensor(value)
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], state: dict[str, Tensor]
) -> None:
    """Put a state from `optimizer_state` back; what the optimizer held before is forgotten."""
    optimizer.state.clear()
    for key, value in state.items():
        name, _, field = key.rpartition("/")
        parameter = parameters[name]
        # Step counts stay where the fused kernels want them; moments live with their parameter.
        device = value.device if value.ndim == 0 and parameter.device.type == "cpu" else parameter.device
        optimizer.state[parameter][field] = value.to(device).clone()
