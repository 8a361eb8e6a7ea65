"""A stage remembers whose tokens it has learned, and what its conditioner has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from stages import STAGES, WRAPPERS, coarse_stage, streams_of
from token_sets import Utterances, make

from madrigal.audiolm.loading import load_audiolm, load_stage
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.engine.learned import FINGERPRINTS
from madrigal.errors import UserError
from madrigal.verbs.systems import load_recipe


class Maker:
    """A tokenizer or a codec that nobody asks for tokens."""

    target_sample_hz = 16000

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = lambda: fingerprint


def test_a_run_does_not_go_on_with_tokens_of_another(tmp_path: Path) -> None:
    make("semantic", tmp_path, wav2vec=Maker("aa")).train()
    make("semantic", tmp_path, wav2vec=Maker("aa"), resume=True)
    make("semantic", tmp_path, resume=True)  # tokens in the batches: nobody knows whose
    with pytest.raises(UserError, match=r"was trained with another tokenizer \(aa, and now bb\)"):
        make("semantic", tmp_path, wav2vec=Maker("bb"), resume=True)


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "copied")
    return tmp_path / "copied"


def relearned(run: Path, stage: str, **other: str) -> None:
    file = run / stage / "recipe.yaml"
    recipe = yaml.safe_load(file.read_text())
    recipe[FINGERPRINTS] |= other
    file.write_text(yaml.safe_dump(recipe))


def test_stages_of_different_makers_are_refused(copied: Path) -> None:
    load_audiolm([copied])
    relearned(copied, "semantic", tokenizer="bb")
    with pytest.raises(UserError, match=r"The semantic stage .* the tokenizer bb, and the coarse stage with another"):
        load_audiolm([copied])


def test_a_codec_that_the_stages_have_not_learned_is_refused(copied: Path) -> None:
    for stage in ("coarse", "fine"):
        if (copied / stage).is_dir():
            relearned(copied, stage, codec="bb")
    with pytest.raises(UserError, match=r"The coarse stage .* the codec bb, and this codec is [0-9a-f]{16}"):
        load_audiolm([copied])


def test_a_device_that_is_not_there_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match="The device 'nowhere' cannot be used here"):
        load_audiolm([run], device="nowhere")


def test_the_recipe_of_a_run_can_be_followed_again(run: Path) -> None:
    recipe = load_recipe(str(run / "semantic" / "recipe.yaml"), [])
    assert FINGERPRINTS not in recipe.model_dump()


class Conditioner(torch.nn.Module):
    """Texts by their length: a frozen table, and a layer that is learned, with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(16, 8).requires_grad_(False)
        self.dropout = torch.nn.Dropout(0.5)
        self.learned = torch.nn.Linear(8, 8)

    def forward(self, *, wavs: Any = None, texts: Any = None, namespace: str) -> torch.Tensor:
        numbers = torch.tensor([[len(text) % 16] for text in texts])
        return self.learned(self.dropout(self.table(numbers)))


CONDITIONED = {"audio_text_condition": True, "cond_dim": 8, "cond_drop_prob": 0.0, "text_encoder": "bytes"}


def conditioned(folder: Path, conditioner: Conditioner, **options: Any) -> Any:
    given = {"audio_conditioner": conditioner, "dataset": Utterances(text="piano"), **options}
    return make("semantic", folder, stage=CONDITIONED, **given)


def test_what_is_frozen_of_a_conditioner_is_neither_trained_nor_saved(tmp_path: Path) -> None:
    conditioner = Conditioner()
    trainer = conditioned(tmp_path, conditioner)
    assert trainer.frozen() == [conditioner.table]
    trainer.train()
    assert not conditioner.table.training
    assert conditioner.learned.training
    again = conditioned(tmp_path, Conditioner(), resume=True)
    assert torch.equal(again.model.audio_conditioner.learned.weight, conditioner.learned.weight)
    assert not torch.equal(again.model.audio_conditioner.table.weight, conditioner.table.weight)


def test_a_conditioner_takes_back_what_was_learned(tmp_path: Path) -> None:
    conditioner = Conditioner()
    conditioned(tmp_path, conditioner).train()
    given = Conditioner()
    table = given.table.weight.clone()
    stage = SemanticTransformer.from_pretrained(tmp_path, averaged=False, audio_conditioner=given)
    assert torch.equal(stage.audio_conditioner.learned.weight, conditioner.learned.weight)
    assert torch.equal(stage.audio_conditioner.table.weight, table)
    with pytest.raises(UserError, match="trained with another audio conditioner: the given one has no"):
        SemanticTransformer.from_pretrained(tmp_path, audio_conditioner=torch.nn.Linear(2, 2))


def test_a_loaded_stage_has_a_conditioner_of_its_own(tmp_path: Path) -> None:
    conditioner, given = Conditioner(), Conditioner()
    conditioned(tmp_path, conditioner).train()
    before = given.learned.weight.clone()
    stage = load_stage("semantic", tmp_path, given, averaged=False)
    assert torch.equal(stage.audio_conditioner.learned.weight, conditioner.learned.weight)
    assert torch.equal(given.learned.weight, before)
    assert WRAPPERS[type(stage)](transformer=stage).audio_conditioner is stage.audio_conditioner


def test_a_trainer_generates_through_its_conditioner(tmp_path: Path) -> None:
    trainer = conditioned(tmp_path, Conditioner())
    texts = ["bells", "a long rain"]
    trainer.model.train()
    drawn = trainer.generate(text=texts, max_length=6, cond_scale=3)
    assert trainer.model.audio_conditioner.dropout.training
    trainer.model.eval()
    embeds = trainer.model.audio_conditioner(texts=texts, namespace="semantic").detach()
    assert torch.equal(drawn, trainer.generate(text_embeds=embeds, max_length=6, cond_scale=3))


@pytest.mark.parametrize("name", STAGES)
def test_AM11_a_stage_is_trained_from_tokens_without_a_codec(name: str, tmp_path: Path) -> None:
    trainer = make(name, tmp_path, codec=None, wav2vec=None)
    assert torch.tensor(trainer.train_step()["loss"]).isfinite()


@pytest.mark.parametrize(
    ("pattern", "ratio"), [("flatten", 1.5), ("delay", 1.5), ("flatten", 2.0), ("delay", 44100 / 512 / 50)]
)
def test_the_clock_of_the_coarse_stage_does_not_drift(pattern: str, ratio: float) -> None:
    stage = coarse_stage(unique_consecutive=False, frames_per_semantic=ratio, pattern=pattern)
    columns = stage.layout.sections[1].pattern.columns_per_frame
    tokens = torch.arange(0, 2000, 256)
    semantic = stage.layout.position(0, tokens) - 1
    coarse = stage.layout.position(1, (tokens * ratio).round().long() * columns) - 1
    frame = columns * stage.layout.sections[1].ticks
    assert float((semantic - coarse).abs().max()) <= frame / 2


def test_a_whole_audiolm_on_several_processes_is_refused(
    sounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe("audiolm/tiny", [f"data={sounds}"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="trains in one process, and here are 2: train its parts one by one"):
        recipe.trainer(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("masked", [False, True])
def test_AM20_any_kernel_may_be_chosen_with_and_without_a_mask(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device has no fast kernel for must fall back to another one."""
    attend, allowed = F.scaled_dot_product_attention, []

    def watched(*args: Any, **options: Any) -> torch.Tensor:
        cuda = torch.backends.cuda
        allowed.append((cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()))
        return attend(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    # With dropout a CPU takes the way of all devices.
    stage = coarse_stage(flash_attn=True, attn_dropout=0.1, mask_prob=0.5 if masked else 0.0).train()
    stage.losses(streams_of(stage), training=True)
    assert allowed
    assert all(all(kernels) for kernels in allowed)
