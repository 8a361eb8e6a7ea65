"""Recipes and overrides that make no sense: one sentence that names the key, and status 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import refused, train


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("train soundstream/tiny", "--run"),
        ("train --run runs/new", "Name a recipe"),
        ("train soundstream/tyny --run runs/new", "did you mean soundstream/tiny?"),
        ("train nonsense --run runs/new", "soundstream/tiny"),
        ("train nowhere.yaml --run runs/new", "nowhere.yaml"),
        ("train soundstream/tiny plan.lr --run runs/new", "plan.lr"),
        ("train soundstream/tiny =3 --run runs/new", "=3"),
        ("train soundstream/tiny data=recordings --resume --overwrite --run runs/codec", "--resume"),
        ("train --resume --run runs/new", "There is no run in runs/new"),
    ],
)
def test_train_without_knowing_what(here: Path, words: str, about: str) -> None:
    assert about in refused(*words.split())


@pytest.mark.parametrize(
    ("override", "about"),
    [
        ("plna.lr=1", "did you mean plan?"),
        ("num_train_steps=3", "did you mean plan.num_train_steps?"),
        ("spectral_dim=16", "did you mean model.spectral_dim?"),
        ("batchsize=2", "did you mean plan.batch_size?"),
        ("plan.seconds_per_batch=0.1", "more than plan.seconds_per_batch 0.1: raise it"),
        ("plan.tokens_per_batch=9", "SoundDataset has no tokens(index)"),
        ("plan.learning_rate=1", "no key 'plan.learning_rate'"),
        ("plan.batchsize=1", "did you mean plan.batch_size?"),
        ("plan.discr_warmup=1", "did you mean plan.discr_warmup_steps?"),
        ("model.spectral_dims=16", "did you mean model.spectral_dim?"),
        ("data.max_length_second=1", "did you mean data.max_length_seconds?"),
        ("model.loss_weights.mell=1", "did you mean 'mel'?"),
        ("plan.lr=fast", "plan.lr is 'fast'"),
        ("plan.lr=", "plan.lr is None"),
        ("plan.lr=0", "plan.lr is 0"),
        ("plan.lr=-1e-4", "plan.lr is -0.0001"),
        ("plan.lr=.nan", "plan.lr is nan"),
        ("plan.lr=.inf", "plan.lr is inf"),
        ("plan.batch_size=0", "plan.batch_size is 0"),
        ("plan.batch_size=2.5", "plan.batch_size is 2.5"),
        ("plan.batch_size=[2]", "plan.batch_size is [2]"),
        ("plan.num_train_steps=-3", "plan.num_train_steps is -3"),
        ("plan.num_train_steps=", "num_train_steps or num_train_epochs"),
        ("plan.num_train_epochs=2", "num_train_steps or num_train_epochs"),
        ("plan.valid_frac=1", "plan.valid_frac is 1"),
        ("plan.scheduler=sinus", "plan.scheduler is 'sinus'"),
        ("plan.optimizer=sgd", "plan.optimizer is 'sgd'"),
        ("plan.mixed_precision=fp8", "plan.mixed_precision is 'fp8'"),
        ("plan.log_with=[nobody]", "nobody"),
        ("plan.lr.peak=1", "lr is a value"),
        ("plan=3", "plan is 3"),
        ("model=3", "model is 3"),
        ("model=small", "model"),
        ("model.strides=[2, 4]", "strides has 2 entries"),
        ("model.strides=[2, 0, 5, 8]", "model.strides"),
        ("model.input_channels=8", "model.input_channels is 8"),
        ("model.target_sample_hz=0", "model.target_sample_hz is 0"),
        ("model.pad_mode=reflect", "hear the future"),
        ("model.rq_kwargs.decay_rate=1", "decay_rate"),
        ("data.max_length_seconds=0", "data.max_length_seconds is 0"),
        ("data.max_length_seconds=1e-9", "max_length"),
        ("data.gain_db=[3, -3]", "gain_db is (3.0, -3.0)"),
        ("data.gain_db=[3]", "data.gain_db"),
        ("data.path=", "data.path is None"),
        ("data.path=nowhere", "There is no folder nowhere"),
        ("data.valid_path=nowhere", "There is no folder nowhere"),
        ("system=orchestra", "no system 'orchestra'"),
        ("system=[1]", "no system [1]"),
    ],
)
def test_train_with_a_wrong_value(here: Path, override: str, about: str) -> None:
    sentence = refused(*train(override))
    assert about in sentence
    assert "pydantic" not in sentence


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("system: [soundstream", "is not valid YAML"),
        ("- soundstream\n- tiny\n", "the key 'system'"),
        ("", "the key 'system'"),
        ("data: recordings\nplan: {num_train_steps: 1}\n", "the key 'system'"),
        ("system: soundstream\nplan: {num_train_steps: 1}\n", "has no data"),
        ("system: soundstream\ndata: recordings\n", "has no plan"),
        ("system: soundstream\ndata: recordings\nplan: 3\n", "plan is 3"),
        ("system: soundstream\n1: 2\ndata: recordings\nplan: {num_train_steps: 1}\n", "keywords must be strings"),
        (b"\xff\xfe\x00\x01", "is not valid YAML"),
        (None, "recipe.yaml"),
    ],
)
def test_train_with_a_recipe_that_makes_no_sense(here: Path, text: str | bytes | None, about: str) -> None:
    if text is None:
        Path("recipe.yaml").mkdir()
    else:
        Path("recipe.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    assert about in refused("train", "recipe.yaml", "--run", "runs/new")
