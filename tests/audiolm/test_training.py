"""The three trainers: they learn, they resume to the bit, and validation changes nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stages import SEMANTIC, STAGES, row_of, semantic_stage, streams_of
from token_sets import TRAINERS, Utterances, make

from madrigal.audiolm.packing import Stream
from madrigal.audiolm.training import SemanticTransformerTrainer
from madrigal.data.tokens import PAD
from madrigal.errors import UserError


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    state = {f"model.{k}": v.clone() for k, v in trainer.model.state_dict().items()}
    averaged = {f"ema.{k}": v.clone() for k, v in trainer.ema.state_dict().items()}
    moments = trainer.turn_states[0].optimizer.state_dict()["state"]
    return {**state, **averaged} | {
        f"{i}.{n}": t.clone() for i, s in moments.items() for n, t in s.items() if isinstance(t, torch.Tensor)
    }


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("pattern", ["flatten", "delay"])
def test_one_batch_is_learned_by_heart(name: str, pattern: str) -> None:
    if name == "semantic" and pattern == "delay":
        pytest.skip("one codebook has nothing to delay")
    stage = STAGES[name](mask_prob=0.0, grad_shrink_alpha=1.0, **({} if name == "semantic" else {"pattern": pattern}))
    streams = streams_of(stage)
    optimizer = torch.optim.Adam(stage.parameters(), 1e-2)
    for _ in range(150):
        loss = stage.losses(streams, training=True)[stage.layout.sections[-1].name]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # Rows that begin alike cannot be told apart before they differ: only the first token of all stays uncertain.
    assert float(loss.detach()) < (0.4 if name == "semantic" else 0.05)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_new_stage_is_at_chance(name: str) -> None:
    stage = STAGES[name]()
    for section, loss in zip(
        stage.layout.sections, stage.losses(streams_of(stage), training=False).values(), strict=True
    ):
        assert float(loss) == pytest.approx(torch.tensor(float(section.codebook_size)).log().item(), rel=0.1)


@pytest.mark.parametrize("name", TRAINERS)
def test_X2_X3_resumed_is_unbroken(name: str, tmp_path: Path) -> None:
    whole = make(name, tmp_path / "whole").train()
    broken = make(name, tmp_path / "broken")
    for _ in range(4):
        broken.train_step()
    broken.save(tmp_path / "broken" / "checkpoints" / "step-00000004")
    resumed = make(name, tmp_path / "broken", resume=True)
    assert resumed.step == 4
    resumed.train()
    assert_same(weights(whole), weights(resumed))


@pytest.mark.parametrize("name", TRAINERS)
def test_AT1_validation_changes_nothing_about_training(name: str, tmp_path: Path) -> None:
    plain, watched = make(name, tmp_path / "plain"), make(name, tmp_path / "watched")
    for _ in range(4):
        expected = plain.train_step()
        watched.validation()
        watched.write_samples()
        found = watched.train_step()
        assert found == expected
    assert_same(weights(plain), weights(watched))


def test_AT1_the_end_and_forgetting_do_not_hang_on_a_mode(tmp_path: Path) -> None:
    trainer = make("semantic", tmp_path)
    batch = trainer.data.feed("all turns").micro_batches(0)[0]
    hidden: list[bool] = []
    forget = trainer.model._forget
    trainer.model._forget = lambda packed: hidden.append(True) or forget(packed)  # type: ignore[method-assign]
    for mode in (True, False):
        trainer.model.train(mode)
        torch.manual_seed(0)
        packed = trainer.model.layout.pack(trainer.wrapper.streams(batch))
        assert bool((packed.targets == SEMANTIC).any()) == bool(batch["reaches_end"].any())
        trainer.loss("semantic", batch)
    assert len(hidden) == 2
    trainer.validate(batch)
    assert len(hidden) == 2


@pytest.mark.parametrize("name", STAGES)
def test_SP6_padding_does_not_change_a_loss(name: str) -> None:
    stage = STAGES[name]()
    streams = streams_of(stage)
    longer = [Stream(torch.nn.functional.pad(s.codes, (0, 0, 0, 9), value=PAD), s.lengths, s.ends) for s in streams]
    for section, loss in stage.losses(streams, training=False).items():
        torch.testing.assert_close(stage.losses(longer, training=False)[section], loss)
    sums, counts = stage.nll(streams, training=False)
    alone = [stage.nll([row_of(s, row) for s in streams], training=False) for row in range(3)]
    for section in sums:
        torch.testing.assert_close(sums[section], torch.stack([nll[section] for nll, _ in alone]).sum())
        assert counts[section] == sum(count[section] for _, count in alone)


def test_weights_of_the_given_stream_count(tmp_path: Path) -> None:
    losses = {}
    for weight in (0.0, 1.0, 2.0):
        trainer = make("coarse", tmp_path / str(weight), semantic_cross_entropy_loss_weight=weight)
        losses[weight] = trainer.train_step()
    plain = losses[0.0]
    assert plain["loss"] == pytest.approx(plain["coarse"])
    assert losses[2.0]["loss"] == pytest.approx(plain["coarse"] + 2 * plain["semantic"], rel=1e-5)


def test_samples_are_written_for_every_item(tmp_path: Path) -> None:
    make("semantic", tmp_path, num_samples=2).train()
    files = sorted(p.name for p in (tmp_path / "samples" / "step-00000006").iterdir())
    assert files == [
        "000-continuation-ema.txt", "000-continuation.txt", "000-original.txt",
        "001-continuation-ema.txt", "001-continuation.txt", "001-original.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_rebuilds_its_stage(name: str, tmp_path: Path) -> None:
    trainer = make(name, tmp_path).train()
    again = type(trainer.model).from_pretrained(tmp_path, averaged=False)
    assert_same(dict(trainer.model.state_dict()), dict(again.state_dict()))
    assert again.config == trainer.model.config


def test_text_reaches_the_stage_from_a_dataset(tmp_path: Path) -> None:
    stage = {"has_condition": True, "text_encoder": "bytes", "cond_drop_prob": 0.0, "mask_prob": 0.0}
    losses = []
    for text in ("a bell", "heavy rain on a roof"):
        trainer = make("semantic", tmp_path / text, stage=stage, dataset=Utterances(text=text))
        losses.append(trainer.train_step()["semantic"])
    assert losses[0] != losses[1]


def test_AT18_AT19_parts_of_tuples_are_named(tmp_path: Path) -> None:
    class Pairs(Utterances):
        def __getitem__(self, index: int) -> Any:
            item = super().__getitem__(index)
            return torch.full((2 + index % 2, 8), float(index)), item["semantic"]

    stage = {"has_condition": True, "cond_dim": 8, "text_encoder": "bytes"}
    trainer = make(
        "semantic", tmp_path, stage=stage, dataset=Pairs(), ds_fields=("text_embeds", "semantic"), valid_frac=0.0
    )
    batch = trainer.data.feed("all turns").micro_batches(0)[0]
    assert batch["text_embeds"].shape == (3, 3, 8)
    assert set(batch["text_mask"].sum(1).tolist()) == {2, 3}
    assert not batch["text_embeds"][~batch["text_mask"]].any()
    trainer.train_step()


def test_AT7_a_given_validation_set_is_used(tmp_path: Path) -> None:
    trainer = make("semantic", tmp_path, valid_dataset=Utterances(2))
    assert sum(len(batch["semantic"]) for batch in trainer.data.validation_batches()) == 2


def test_AT21_what_a_conditioner_learns_is_trained_and_saved(tmp_path: Path) -> None:
    class Conditioner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 8)

        def forward(self, *, wavs: Any = None, texts: Any = None, namespace: str) -> torch.Tensor:
            return self.table(torch.tensor([[len(text) % 4] for text in texts]))

    conditioner = Conditioner()
    before = conditioner.table.weight.detach().clone()
    stage = {"audio_text_condition": True, "cond_dim": 8, "cond_drop_prob": 0.0, "text_encoder": "bytes"}
    trainer = make(
        "semantic", tmp_path, stage=stage, audio_conditioner=conditioner, dataset=Utterances(text="piano")
    ).train()
    assert not torch.equal(conditioner.table.weight, before)
    assert any(name.startswith("audio_conditioner.") for name in trainer.model.state_dict())


def test_a_codec_with_other_codebooks_is_refused(tmp_path: Path) -> None:
    class Codec:
        rq_groups, codebook_size, target_sample_hz = 2, 10, 16000

    with pytest.raises(UserError, match="rq_groups is 2"):
        make("coarse", tmp_path, codec=Codec())


def test_batches_without_tokens_need_a_tokenizer(tmp_path: Path) -> None:
    class Waves(Utterances):
        def __getitem__(self, index: int) -> Any:
            return torch.randn(320)

    with pytest.raises(UserError, match="give the trainer a tokenizer"):
        make("semantic", tmp_path, dataset=Waves()).train_step()


def test_keywords_of_older_scripts_are_taken(tmp_path: Path) -> None:
    trainer = SemanticTransformerTrainer(
        transformer=semantic_stage(flash_attn=True, rel_pos_bias=True),
        dataset=Utterances(),
        num_train_steps=1,
        batch_size=2,
        lr=3e-4,
        grad_accum_every=2,
        wd=0.01,
        max_grad_norm=0.5,
        valid_frac=0.2,
        random_split_seed=42,
        save_results_every=100,
        save_model_every=1000,
        results_folder=tmp_path,
        accelerate_kwargs={},
        init_process_group_timeout_seconds=1800,
        use_wandb_tracking=False,
        split_batches=False,
        drop_last=False,
        force_clear_prev_results=None,
        average_valid_loss_over_grad_accum_every=True,
    )
    assert trainer.model.config.positions == "relative"
    trainer.train()


@pytest.mark.parametrize("name", TRAINERS)
def test_validation_does_not_hang_on_the_batch_size(name: str, tmp_path: Path) -> None:
    """The rows differ in length, so a mean over items would."""
    weights = {"semantic_cross_entropy_loss_weight": 0.5, "coarse_cross_entropy_loss_weight": 0.5}
    found = []
    for size in (1, 4, 5):
        stage = {"grad_shrink_alpha": 1.0}
        trainer = make(name, tmp_path / str(size), stage=stage, batch_size=size, valid_dataset=Utterances(9), **weights)
        found.append(trainer.validation())
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)
    own = found[0][f"valid/{name}"]
    given = sum(v for k, v in found[0].items() if k in {"valid/semantic", "valid/coarse"} - {f"valid/{name}"})
    assert found[0]["valid/loss"] == pytest.approx(own + 0.5 * given)
