"""MuLaN's trainer: resume, ranks, validation, the alarm, the words of older scripts, and its recipe."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launching import on_two_ranks
from mulans_on_ranks import PLANS, train
from safetensors.torch import load_file
from small_mulans import PLAIN, caption, chord, mulan, pairs, recordings, trainer
from torch import Tensor

from madrigal import MuLaNTrainer, UserError
from madrigal.data.prepare import prepare
from madrigal.musiclm.captions import CaptionedSource, collate_pairs, named
from madrigal.musiclm.retrieval import places, spread


def state(folder: Path, step: int) -> dict[str, Tensor]:
    place = folder / "checkpoints" / f"step-{step:08d}"
    return {
        f"{kind} {k}": v for kind in ("model", "optimizer") for k, v in load_file(place / f"{kind}.safetensors").items()
    }


def test_MU12_a_resumed_run_is_the_unbroken_one_to_the_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_train_steps": 4, "save_model_every": 2, "chunk_size": 4, "save_results_every": 2}
    trainer(tmp_path / "whole", **options).train()
    first = trainer(tmp_path / "broken", **options)
    for _ in range(2):
        first.train_step()
    first.save(first.run.checkpoints / "step-00000002")
    again = trainer(tmp_path / "broken", mulan({"dim": 32}), resume=True, **options)
    assert again.step == 2
    again.train()
    wanted, found = state(tmp_path / "whole", 4), state(tmp_path / "broken", 4)
    assert wanted.keys() == found.keys()
    assert all(torch.equal(wanted[key], found[key]) for key in wanted)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    two, one = tmp_path_factory.mktemp("two"), tmp_path_factory.mktemp("one")
    on_two_ranks(Path(__file__).parent / "mulans_on_ranks.py", two)
    train(one, batch_size=8)
    return two, one


@pytest.mark.parametrize("name", PLANS)
def test_MU5_two_ranks_are_one_with_the_same_global_batch(name: str, ranks: tuple[Path, Path]) -> None:
    """Negatives are gathered with gradients, and augmentation belongs to the item, not to the rank."""
    first, second = (load_file(ranks[0] / f"{name}-{rank}.safetensors") for rank in (0, 1))
    alone = load_file(ranks[1] / f"{name}-0.safetensors")
    for key in alone:
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], alone[key], atol=2e-5, rtol=1e-3)
    lines = [
        [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()] for folder in ranks
    ]
    for found, wanted in zip(*lines, strict=True):
        for key in (
            "loss",
            "chance",
            "valid/loss",
            "valid/chance",
            "valid/chance/recall@10",
            "valid/audio_to_text/recall@5",
            "valid/text_to_audio/recall@5",
            "valid/alignment",
        ):
            assert found.get(key) == pytest.approx(wanted.get(key), abs=1e-4), key


def test_MU7_ranks_may_have_different_numbers_of_rows(ranks: tuple[Path, Path]) -> None:
    """All rows on all ranks, and the gradients of both ranks' losses where they belong."""
    first, second = (load_file(ranks[0] / f"gathered-{rank}.safetensors") for rank in (0, 1))
    assert torch.equal(first["rows"], torch.tensor([[0.0], [10.0], [11.0]]))
    assert torch.equal(first["rows"], second["rows"])
    assert (first["place"].tolist(), second["place"].tolist()) == ([0, 2], [1, 2])
    assert torch.equal(first["grad"], torch.tensor([[3.0]]))
    assert torch.equal(second["grad"], torch.tensor([[6.0], [9.0]]))


def test_MU8_MU17_two_ranks_know_of_each_other_and_one_of_them_clears(ranks: tuple[Path, Path]) -> None:
    told = [load_file(ranks[0] / f"cleared-{rank}.safetensors")["told"].tolist() for rank in (0, 1)]
    assert told == [[True, True], [True, False]]
    left = sorted(path.name for path in (ranks[0] / "cleared" / "checkpoints").glob("step-*"))
    assert left == ["step-00000001"]


def test_accumulation_is_no_larger_batch(tmp_path: Path) -> None:
    """Two contests of 4 have 3 negatives each; one of 8 has 7. In chunks it stays one of 8."""
    losses = {}
    for name, options in {
        "accumulated": {"batch_size": 4, "grad_accum_every": 2},
        "whole": {"batch_size": 8},
        "chunks": {"batch_size": 8, "chunk_size": 4},
    }.items():
        made = trainer(tmp_path / name, mulan(PLAIN), **options)
        losses[name] = made.train_step()
    assert losses["accumulated"]["chance"] == pytest.approx(math.log(3))
    assert losses["whole"]["chance"] == pytest.approx(math.log(7))
    assert losses["chunks"]["loss"] == pytest.approx(losses["whole"]["loss"], abs=1e-5)
    assert losses["chunks"]["grad_norm"] == pytest.approx(losses["whole"]["grad_norm"], rel=1e-3)


def test_MU9_validation_covers_the_whole_split_and_changes_nothing(tmp_path: Path) -> None:
    made = trainer(tmp_path, batch_size=8, valid_frac=0.25)
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    once, again = made.validation(), made.validation()
    assert once == again
    assert once["valid/chance/recall@10"] == pytest.approx(10 / 16)
    assert once["valid/chance"] == pytest.approx(math.log(7))
    assert {f"valid/{way}/recall@{k}" for way in ("audio_to_text", "text_to_audio") for k in (1, 5, 10)} <= set(once)
    assert -1 <= once["valid/audio_spread"] <= 1
    assert all(torch.equal(before[name], tensor) for name, tensor in made.model.state_dict().items())


def test_what_is_averaged_is_validated_with_its_own_temperature(tmp_path: Path) -> None:
    made = trainer(tmp_path, mulan(hierarchical_contrastive_loss=True), batch_size=8, use_ema=True)
    before = made.validation()
    with torch.no_grad():
        made.model.contrast.temperatures.fill_(4.0)
    after = made.validation()
    assert after["valid/ema/loss"] == before["valid/ema/loss"] == before["valid/loss"] != after["valid/loss"]


def test_an_alarm_in_words_when_the_loss_stays_at_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captions that say nothing of their sounds, and some that do."""
    said = []
    noise = [(torch.randn(1000), caption(number)) for number in range(24)]
    for name, data, lr in (("noise", noise, 1e-7), ("chords", pairs(24, seconds=0.25), 3e-3)):
        options = {"num_train_steps": 30, "batch_size": 24, "chance_alarm_every": 30, "valid_frac": 0.0}
        trainer(tmp_path / name, mulan(PLAIN), data, lr=lr, **options).train()
        said.append("".join(capsys.readouterr()))
    assert "of what it is by chance" in said[0]
    assert "of what it is by chance" not in said[1]


def test_bf16_trains_every_loss_in_chunks(tmp_path: Path) -> None:
    options = {"hierarchical_contrastive_loss": True}
    made = trainer(tmp_path, mulan(**options), mixed_precision="bf16", chunk_size=3, gradient_checkpointing=True)
    assert math.isfinite(made.train_step()["grad_norm"])


def test_MU11_one_time_through_the_data_where_no_steps_are_given(tmp_path: Path) -> None:
    made = MuLaNTrainer(mulan(), pairs(40), batch_size=8, valid_frac=0.0, results_folder=tmp_path, num_train_steps=None)
    assert made.num_train_steps == 5


def test_MU10_nothing_is_cut_to_the_shortest() -> None:
    batch = collate_pairs([(torch.ones(5), torch.tensor([1, 2, 3])), (torch.ones(9), torch.tensor([4]))])
    assert batch["audio"].shape == (2, 1, 9)
    assert batch["lengths"].tolist() == [5, 9]
    assert batch["texts"].tolist() == [[1, 2, 3], [4, -1, -1]]


def test_pairs_are_known_by_their_kinds() -> None:
    assert set(named(("a caption", torch.ones(4)))) == {"audio", "text"}
    assert set(named({"wavs": torch.ones(4), "raw_texts": "a"})) == {"audio", "text"}
    with pytest.raises(UserError, match="should be a pair"):
        named(torch.ones(4))


def test_words_of_older_scripts(tmp_path: Path) -> None:
    data = [(chord(i), torch.randint(1, 200, (3 + i % 4,))) for i in range(20)]
    made = MuLaNTrainer(
        mulan(),
        data,
        num_train_steps=2,
        batch_size=4,
        data_max_length=1000,
        lr=3e-4,
        grad_accum_every=1,
        betas=(0.9, 0.99),
        max_grad_norm=0.5,
        valid_frac=0.2,
        random_split_seed=42,
        save_model_every=1000,
        results_folder=tmp_path,
        accelerate_kwargs={},
        use_lion=True,
        force_clear_prev_results=None,
    )
    assert made.plan.optimizer == "lion"
    batch = made.data.feed("all turns").micro_batches(0)[0]
    assert batch["audio"].shape[-1] == 1000
    made.train()
    assert made.step == 2


def test_MU8_MU17_what_is_there_is_cleared_only_where_it_is_asked_for(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    assert not made.is_distributed
    made.train()
    with pytest.raises(UserError, match="already holds a run"):
        trainer(tmp_path)
    trainer(tmp_path, force_clear_prev_results=True)
    assert not list((tmp_path / "checkpoints").glob("step-*"))


def test_a_folder_with_captions_trains(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "music")
    (folder / "03.txt").unlink()
    made = MuLaNTrainer(
        mulan(),
        folder=folder,
        data_max_length=1600,
        num_train_steps=2,
        batch_size=4,
        valid_frac=0.3,
        num_samples=2,
        results_folder=tmp_path / "run",
        save_results_every=2,
        use_ema=False,
    )
    batch = made.data.feed("all turns").micro_batches(0)[0]
    assert set(batch) == {"audio", "lengths", "text", "draw"}
    assert batch["audio"].shape[-1] == 1600
    assert len(made.data.train) + len(made.data.valid) == 11
    made.train()
    told = sorted((tmp_path / "run" / "samples" / "step-00000002").iterdir())
    assert [path.name for path in told] == [
        "000-captions.txt",
        "000-original.wav",
        "001-captions.txt",
        "001-original.wav",
    ]


def test_one_of_several_captions_is_read_at_random(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "music", 8)
    prepare(folder, tmp_path / "prepared")
    file = tmp_path / "prepared" / "manifest.jsonl"
    entries = [{**json.loads(line), "captions": ["one", "two"]} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    source = CaptionedSource(path=file, valid_path=file)
    train, valid = source.pairs(4000, prepared_in=tmp_path / "run", anew=True, say=None)
    read = {train.draw(0, np.random.default_rng(seed))["text"] for seed in range(30)}
    assert read == {"one", "two", train[0]["text"], entries[0]["text"]}
    assert {valid.draw(0, np.random.default_rng(seed))["text"] for seed in range(9)} == {entries[0]["text"]}


def test_recordings_without_captions_are_refused(tmp_path: Path) -> None:
    folder = recordings(tmp_path / "music", 4)
    for file in folder.glob("*.txt"):
        file.unlink()
    with pytest.raises(UserError, match="has a caption"):
        MuLaNTrainer(mulan(), folder=folder, num_train_steps=2, batch_size=2, results_folder=tmp_path / "run")


def test_a_mulan_that_takes_log_mels_is_trained_as_one_that_takes_waves(tmp_path: Path) -> None:
    """And has the same weights then: both embed the same."""
    with pytest.raises(UserError, match="accept_spec=False"):
        trainer(tmp_path / "spectra", mulan({"accept_spec": True}), [(torch.randn(20, 64), "a")] * 16)
    made = trainer(tmp_path / "waves").train().model.eval()
    other = mulan({"accept_spec": True}).eval()
    other.load_state_dict(made.state_dict())
    wave = chord(3)[None]
    torch.testing.assert_close(other.get_audio_latents(made.audio.mels.raw(wave)), made.get_audio_latents(wave))


def test_a_contest_needs_two(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="batch_size"):
        trainer(tmp_path, batch_size=1)


def test_a_tokenizer_learns_once_from_the_captions(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    from madrigal.verbs.systems import load_recipe

    folder = recordings(tmp_path / "music")
    words = [
        f"data={folder}",
        "model.text.tokenizer.kind=bpe",
        "model.text.tokenizer.vocabulary=270",
        "model.audio.sample_rate=4000",
        "plan.num_samples=0",
        "plan.use_ema=false",
    ]
    recipe = load_recipe("mulan/tiny", words)
    made = recipe.trainer(tmp_path / "run").train()
    merges = made.model.config.text.tokenizer.merges
    assert merges
    again = load_recipe(str(tmp_path / "run" / "recipe.yaml"), ["plan.num_train_steps=5"])
    assert again.trainer(tmp_path / "run", resume=True).model.config.text.tokenizer.merges == merges


def test_places_share_ties_and_know_equal_captions() -> None:
    alike = torch.nn.functional.normalize(torch.ones(5, 3), dim=1)
    assert places(alike, alike, torch.arange(5)).tolist() == [2.0] * 5
    assert places(alike, alike, torch.zeros(5)).tolist() == [0.0] * 5
    rows = torch.eye(4)
    assert places(rows, rows, torch.arange(4)).tolist() == [0.0] * 4
    assert places(rows, rows.roll(1, 0), torch.arange(4)).tolist() == [2.0] * 4  # one before it, and two like it
    assert spread(alike) == pytest.approx(1.0)
    assert spread(rows) == pytest.approx(0.0)
