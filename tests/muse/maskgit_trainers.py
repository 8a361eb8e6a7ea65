"""Small trainers of MaskGit, and all that a run holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from maskgit_toys import Squares, base, critic, superres
from torch import Tensor

from madrigal.muse.maskgit_training import MaskGitTrainer, TokenCriticTrainer

PLAN: dict[str, Any] = {
    "num_train_steps": 6,
    "batch_size": 3,
    "lr": 1e-3,
    "valid_frac": 0.25,
    "save_results_every": 3,
    "save_model_every": 2,
    "ema_update_after_step": 1,
    "ema_update_every": 2,
    "num_samples": 2,
    "sample_timesteps": 2,
}


def maskgit(folder: Path, **plan: Any) -> MaskGitTrainer:
    """With all that is drawn by chance."""
    model = base(
        net={"self_cond": True, "ff_dropout": 0.1}, self_cond_prob=0.5, no_mask_token_prob=0.1, self_token_critic=True
    )
    return MaskGitTrainer(model, dataset=Squares(), results_folder=folder, **{**PLAN, **plan})


def larger(folder: Path, **plan: Any) -> MaskGitTrainer:
    return MaskGitTrainer(superres(), dataset=Squares(32), results_folder=folder, **{**PLAN, **plan})


def judging(folder: Path, **plan: Any) -> TokenCriticTrainer:
    model = base(token_critic=critic(), net={"ff_dropout": 0.1})
    return TokenCriticTrainer(model, dataset=Squares(ids=True), results_folder=folder, **{**PLAN, **plan})


TRAINERS = {"maskgit": maskgit, "superres": larger, "token-critic": judging}


def whole_state(run: MaskGitTrainer) -> dict[str, Tensor]:
    """Weights, averages and moments, as they lie in a checkpoint."""
    state = {f"model/{name}": tensor.clone() for name, tensor in run.model.state_dict().items()}
    if run.ema is not None:
        state |= {f"ema/{name}": tensor.clone() for name, tensor in run.ema.state_dict().items()}
    for turn in run.turn_states:
        for number, moments in turn.optimizer.state_dict()["state"].items():
            state |= {f"{turn.name}/{number}/{k}": torch.as_tensor(v).clone() for k, v in moments.items()}
    return state
