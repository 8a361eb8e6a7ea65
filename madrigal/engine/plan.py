"""The plan of a training: what a person chooses about the loop, whatever is trained."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from madrigal.engine.optimizers import OptimizerName
from madrigal.engine.precision import PrecisionName
from madrigal.engine.schedule import ScheduleName


class Plan(BaseModel):
    """Keyword arguments of every trainer, keys of every recipe's `plan`, overrides on the command line.

    Length is `num_train_steps` or `num_train_epochs`; one step sees `batch_size * grad_accum_every` items on
    each process. With `seconds_per_batch` or `tokens_per_batch` a micro-batch holds as many items of like length as
    fit, padding included, and `batch_size` means nothing.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    num_train_steps: int | None = Field(None, ge=1, description="steps to train in all")
    num_train_epochs: float | None = Field(None, gt=0, description="or: times to go through the data")
    batch_size: int = Field(4, ge=1, description="items in a micro-batch of one process")
    seconds_per_batch: float | None = Field(None, gt=0, description="or: seconds of sound in it, in like lengths")
    tokens_per_batch: int | None = Field(None, ge=1, description="or: tokens in it, in like lengths")
    grad_accum_every: int = Field(1, ge=1, description="micro-batches in a step")
    seed: int = Field(0, ge=0, description="order, crops, dropout and noise follow from it")

    lr: float = Field(3e-4, gt=0, description="peak learning rate")
    initial_lr: float = Field(0.0, ge=0, description="where the warm-up starts")
    final_lr: float = Field(0.0, ge=0, description="where a linear or cosine schedule ends")
    warmup_steps: int = Field(0, ge=0, description="linear warm-up")
    scheduler: ScheduleName | Callable[[int], float] | type = Field(
        "constant",
        description="constant, linear or cosine; in Python also a curve or a torch scheduler class",
    )
    scheduler_kwargs: dict[str, Any] = Field(default_factory=dict, description="for a torch scheduler class")
    optimizer: OptimizerName = Field("auto", description="adam, adamw, lion, muon; auto: adamw where wd is set")
    wd: float = Field(0.0, ge=0, description="weight decay; never on biases, norms, scales")
    betas: tuple[float, float] = Field((0.9, 0.99), description="of the optimizer")
    max_grad_norm: float | None = Field(0.5, gt=0, description="clip norm of a turn's own parameters")
    max_skipped_steps: int = Field(10, ge=1, description="stop after so many non-finite steps in a row")

    use_ema: bool = Field(True, description="keep an average of the weights")
    ema_beta: float = Field(0.995, ge=0, lt=1, description="how much of itself the average keeps when it moves")
    ema_update_after_step: int = Field(500, ge=0, description="up to here the average equals the weights")
    ema_update_every: int = Field(10, ge=1, description="steps between moves of the average")

    valid_frac: float = Field(0.05, ge=0, lt=1, description="share held out where no validation set is given")
    random_split_seed: int = Field(42, ge=0, description="which items are held out follows from it")
    best_metric: str | None = Field(None, description="the validation figure that picks the best checkpoint")
    best_is_highest: bool = Field(False, description="whether more of best_metric is better")
    num_samples: int = Field(4, ge=0, description="samples written at each validation")

    save_results_every: int = Field(100, ge=1, description="steps between validations with samples")
    save_model_every: int = Field(1000, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(3, ge=1, description="newest checkpoints kept, beside the best")
    log_losses_every: int = Field(1, ge=1, description="steps between lines of metrics.jsonl")

    mixed_precision: PrecisionName = Field(
        "fp32",
        description="fp32, bf16, fp16 with a loss scale; auto: bf16 where the device computes in it, fp32 elsewhere",
    )
    compile: bool = Field(False, description="torch.compile on the model's blocks")
    gradient_checkpointing: bool = Field(False, description="recompute the blocks' activations in backward")
    deterministic: bool = Field(False, description="on a GPU: only kernels that repeat to the bit")
    dl_num_workers: int = Field(0, ge=0, description="processes that load data")
    log_with: tuple[str, ...] = Field((), description="Accelerate's trackers: tensorboard, wandb, trackio, …")

    @model_validator(mode="after")
    def _has_one_length(self) -> "Plan":
        if (self.num_train_steps is None) == (self.num_train_epochs is None):
            raise ValueError("give either num_train_steps or num_train_epochs")
        return self

    @model_validator(mode="after")
    def _has_one_budget(self) -> "Plan":
        if self.seconds_per_batch is not None and self.tokens_per_batch is not None:
            raise ValueError("give either seconds_per_batch or tokens_per_batch")
        return self

    def recorded(self) -> dict[str, Any]:
        """The plan as plain values for `recipe.yaml`; a curve that only Python can hold is named."""
        values = self.model_dump(mode="python")
        for key, value in values.items():
            if callable(value):
                values[key] = getattr(value, "__name__", "custom")
        return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
