"""The three trainers: they learn, take data in every form, mix generated pairs in, and say what they do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from spear_trainings import SEMANTIC, TRAINERS, WRITTEN, Pairs, make, new_model
from torch.utils.data import Dataset

from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, open_folder, write_shard
from madrigal.data.tokens import TokenInfo
from madrigal.errors import UserError
from madrigal.speartts.edit_distance import character_errors
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.pairs import mixed
from madrigal.speartts.source import PairSource
from madrigal.speartts.training import SpeechSpeechPretrainer

INFO = TokenInfo(kind="stub", fingerprint="fedcba9876543210", frame_rate=25.0, codebook_size=SEMANTIC)


def first_batch(trainer: Any, step: int = 0) -> dict[str, Any]:
    batch: dict[str, Any] = trainer.data.feed("all turns").micro_batches(step)[0]
    return batch


@pytest.mark.parametrize("name", ["semantic-to-text", "text-to-semantic"])
def test_one_batch_is_learned_by_heart(name: str, tmp_path: Path) -> None:
    all_learns: dict[str, Any] = {"semantic-to-text": {"freeze_encoder": False}}.get(
        name, {"tuned_encoder_layers": None}
    )
    trainer = make(name, tmp_path, **all_learns)
    batch = first_batch(trainer)
    optimizer = torch.optim.Adam(trainer.model.parameters(), 1e-2)
    for _ in range(100):
        loss = trainer.loss("", batch)[WRITTEN[name]]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    if name == "text-to-semantic":  # two rows have the same text: their first token is anybody's guess
        assert trainer.validate(batch)["accuracy"][0] > 0.9
    else:
        assert trainer.validate(batch)["accuracy"][0] == 1.0
        assert float(trainer.validate(batch)["cer"][0]) == 0.0
        for sample in trainer.sample(batch):
            assert sample["original"] == sample["read"]


def test_pretraining_learns_to_fill_in(tmp_path: Path) -> None:
    class Counting(Dataset[Any]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> torch.Tensor:
            return (torch.arange(12) + index) % SEMANTIC

    trainer = make("speech-speech", tmp_path, dataset=Counting(), num_train_steps=60, deletion_prob=0.3, batch_size=8)
    losses = [trainer.train_step()["speech"] for _ in range(60)]
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5])


@pytest.mark.parametrize("name", TRAINERS)
def test_tuples_are_pairs_as_dicts_are(name: str, tmp_path: Path) -> None:
    plain, tuples = make(name, tmp_path / "a"), make(name, tmp_path / "b", dataset=Pairs(as_tuple=True))
    assert plain.train_step() == tuples.train_step()


def test_ids_of_text_need_no_text_tokenizer(tmp_path: Path) -> None:
    class Ids(Pairs):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)["semantic"], torch.arange(1 + index % 3)

    trainer = make("semantic-to-text", tmp_path, model={"num_text_token_ids": 9}, dataset=Ids()).train()
    assert (tmp_path / "samples" / "step-00000006" / "000-read.txt").exists()
    assert trainer.model.text_tokenizer is None
    with pytest.raises(UserError, match="build it with text="):
        make("semantic-to-text", tmp_path / "other", model={"num_text_token_ids": 9}).train_step()


def test_waves_are_learned_from(tmp_path: Path) -> None:
    from test_wrappers import Ears

    class Waves(Pairs):
        def __getitem__(self, index: int) -> Any:
            semantic, text = super().__getitem__(index).values()
            return (semantic / 20).repeat_interleave(4).half(), text

    for name in TRAINERS:
        heard = make(name, tmp_path / name, dataset=Waves(), wav2vec=Ears())
        read = make(name, tmp_path / f"{name}-ids")
        assert heard.train_step() == read.train_step()
        assert heard.units(first_batch(heard)) == read.units(first_batch(read))


@pytest.mark.parametrize("name", TRAINERS)
def test_SP17_a_trainer_without_data_says_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Give the trainer its data"):
        make(name, tmp_path, dataset=None)


def test_SP16_the_rate_that_the_warm_up_starts_at_is_recorded_as_it_is(tmp_path: Path) -> None:
    trainer = SpeechSpeechPretrainer(
        new_model(), None, dataset=Pairs(), num_train_steps=4, num_warmup_steps=2, batch_size=2, lr=1e-2,
        initial_lr=1e-4, results_folder=tmp_path,
    )  # fmt: skip
    assert trainer.recipe["plan"]["initial_lr"] == 1e-4
    assert trainer.recipe["plan"]["lr"] == 1e-2
    rates = [trainer.train_step()["lr"] for _ in range(4)]
    assert rates == pytest.approx([1e-4 + 9.9e-3 / 3, 1e-4 + 2 * 9.9e-3 / 3, 1e-2, 0.0], abs=1e-9)
    assert make("speech-speech", tmp_path / "b").plan.initial_lr == 1e-5


def test_a_word_and_its_older_form_are_one(tmp_path: Path) -> None:
    trainer = make("speech-speech", tmp_path, log_every=3)
    assert trainer.plan.log_losses_every == 3
    with pytest.raises(UserError, match="num_warmup_steps and warmup_steps"):
        make("speech-speech", tmp_path / "b", num_warmup_steps=4)
    with pytest.raises(UserError, match="did you mean"):
        make("speech-speech", tmp_path / "b", deletion_probe=0.5)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    class Ears:
        codebook_size = 7

    with pytest.raises(UserError, match="codebook_size is 7"):
        make("speech-speech", tmp_path, wav2vec=Ears())


@pytest.mark.parametrize("name", TRAINERS)
def test_validation_does_not_hang_on_the_batch_size(name: str, tmp_path: Path) -> None:
    class Uneven(Pairs):
        """Some texts are longer than CTC has room for."""

        def __getitem__(self, index: int) -> Any:
            item = super().__getitem__(index)
            return {**item, "text": item["text"] * (6 if index % 4 == 2 else 1)}

    found = []
    for size in (1, 4, 5):
        options: dict[str, Any] = {}
        if name == "semantic-to-text":
            options = {"reads_per_batch": 9, "model": {"ctc_loss_weight": 0.7}}
        if name == "speech-speech":
            options = {"reconstruct_seq": True, "deletion_prob": 1e-6}
        trainer = make(name, tmp_path / str(size), batch_size=size, val_dataset=Uneven(9), **options)
        found.append(trainer.validation())
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-4)
    if name == "semantic-to-text":
        assert found[0]["valid/cer"] > 0
        assert found[0]["valid/ctc"] > 0
        assert found[0]["valid/ctc_fits"] < 1, "a text that does not fit is among them"


def test_what_was_read_is_written_beside_what_was_said(tmp_path: Path) -> None:
    make("semantic-to-text", tmp_path).train()
    files = sorted(p.name for p in (tmp_path / "samples" / "step-00000006").iterdir())
    assert files == [f"{n:03d}-{what}.txt" for n in (0, 1) for what in ("original", "read-ema", "read")]
    assert (tmp_path / "samples" / "step-00000006" / "000-original.txt").read_text().strip() in {
        "so", "so far", "so far away",
    }  # fmt: skip


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_rebuilds_its_model(name: str, tmp_path: Path) -> None:
    trainer = make(name, tmp_path).train()
    again = TextToSemantic.from_pretrained(tmp_path, averaged=False)
    assert again.config == trainer.model.config
    for key, tensor in trainer.model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key


def test_two_trainers_and_more_in_one_process(tmp_path: Path) -> None:
    """One model through all three, as the older library's trainers could not."""
    model = new_model()
    for name in TRAINERS:
        make(name, tmp_path / name, model=model, num_train_steps=2).eval().train()


# Generated pairs.


@pytest.fixture
def generated(tmp_path: Path) -> Path:
    """Eight labelled recordings, as `madrigal pseudo-label` leaves them."""
    pairs = Pairs()
    entries = [
        Entry(path=f"{n}.wav", duration=len(pairs[n]["semantic"]) / 25, sample_rate=16000, channels=1, text="made up")
        for n in range(8)
    ]
    manifest = Manifest(tmp_path / "generated", entries)
    folder = open_folder(tmp_path / "generated", INFO, manifest)
    shard = write_shard(folder, 0, INFO, entries, lambda entry: pairs[int(Path(entry.path).stem)]["semantic"].numpy())
    close_folder(folder, INFO, manifest, [shard])
    manifest.write(tmp_path / "generated" / "manifest.jsonl")
    return tmp_path / "generated"


def shares(trainer: Any, steps: int) -> list[bool]:
    return [text == "made up" for step in range(steps) for text in first_batch(trainer, step)["text"]]


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.8])
def test_generated_pairs_are_mixed_in_by_their_ratio(ratio: float, generated: Path, tmp_path: Path) -> None:
    options = {"generated_audio_text_dataset_folder": generated, "generated_ratio": ratio, "batch_size": 4}
    trainer = make("text-to-semantic", tmp_path / "a", **options)
    found = shares(trainer, 60)
    assert sum(found) / len(found) == pytest.approx(ratio, abs=0.08)
    again = make("text-to-semantic", tmp_path / "b", **options)
    assert torch.equal(first_batch(trainer, 7)["semantic"], first_batch(again, 7)["semantic"])
    # Validation is on real pairs, none of which is trained on.
    valid = [text for batch in trainer.data.validation_batches() for text in batch["text"]]
    assert "made up" not in valid
    real = trainer.data.train.dataset.datasets[0]
    assert not set(trainer.data.valid.indices) & set(real.indices)


def test_without_a_ratio_every_pair_is_taken_once(generated: Path, tmp_path: Path) -> None:
    trainer = make("text-to-semantic", tmp_path / "a", generated_audio_text_dataset_folder=generated, batch_size=1)
    assert sum(shares(trainer, len(trainer.data.train))) == 8
    only = make("text-to-semantic", tmp_path / "b", generated_audio_text_dataset_folder=generated, dataset=None)
    assert len(only.data.train) + len(only.data.valid) == 8


@pytest.mark.parametrize(("real", "made", "ratio"), [(10, 40, 0.5), (40, 10, 0.5), (3, 100, 0.8), (7, 7, 0.1)])
def test_the_smaller_set_is_gone_through_more_often(real: int, made: int, ratio: float) -> None:
    both: Any = mixed(Pairs(real), Pairs(made), ratio)
    counts = torch.bincount(torch.tensor(both.indices), minlength=real + made)
    assert counts.min() >= 1
    for part in (counts[:real], counts[real:]):
        assert part.max() - part.min() <= 1
    assert float(counts[real:].sum()) / len(both) == pytest.approx(ratio, abs=0.02)


def test_generated_pairs_of_another_tokenizer_are_refused(tmp_path: Path, generated: Path) -> None:
    class Ears:
        codebook_size, target_sample_hz, frame_rate = SEMANTIC, 16000, 50.0

        def fingerprint(self) -> str:
            return "0123456789abcdef"

    with pytest.raises(UserError, match="tokens of another tokenizer"):
        make("text-to-semantic", tmp_path / "a", wav2vec=Ears(), generated_audio_text_dataset_folder=generated)


def test_generated_ids_of_text_join_texts(tmp_path: Path) -> None:
    """A batch may hold both: what a reader of phonemes has written is ids."""
    trainer = make("text-to-semantic", tmp_path / "a")
    assert trainer.model.text_tokenizer is not None
    batch = trainer.collate([(torch.arange(4), "so far"), (torch.arange(3), torch.tensor([5, 6]))])
    assert batch["text_ids"][0].tolist() == trainer.model.text_tokenizer.encode("so far")
    assert batch["text_ids"][1, :2].tolist() == [5, 6]
    assert batch["text_lengths"].tolist() == [6, 2]


def test_generated_pairs_go_by_a_budget_too(generated: Path, tmp_path: Path) -> None:
    class Measured(Pairs):
        def tokens(self, index: int) -> int:
            return len(self[index]["semantic"])

    trainer = make(
        "text-to-semantic", tmp_path / "a", generated_audio_text_dataset_folder=generated, dataset=Measured(),
        tokens_per_batch=20, generated_ratio=0.5, valid_frac=0.0,
    )  # fmt: skip
    for step in range(5):
        assert first_batch(trainer, step)["semantic"].numel() <= 20


@pytest.mark.parametrize(
    ("said", "read", "errors"),
    [("so far", "so far", 0), ("so far", "so fr", 1), ("", "ab", 2), ("abc", "", 3), ("kitten", "sitting", 3)],
)
def test_errors_are_counted_in_characters(said: str, read: str, errors: int) -> None:
    assert character_errors(said, read) == errors
    assert character_errors(read, said) == errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"generated_ratio": 0.5, "folder": None}, "generated_ratio is a share of pairs that need"),
        ({"generated_ratio": 1.0}, "generated_ratio is 1.0; give a share between 0 and 1"),
        ({"generated_ratio": 0.0}, "generated_ratio is 0.0; give a share between 0 and 1"),
        ({"generated_ratio": 0.2, "dataset": None}, "generated_ratio is a share beside real pairs, and there are none"),
        ({"generated_ratio": 0.2, "dataset": Pairs(0)}, "leaves a share to real pairs, and there are none"),
        ({"train_dataloader": [1], "dataset": None}, "is not mixed into a train_dataloader"),
        ({"source": PairSource(path=Path("x")), "dataset": None}, "is not mixed into a source"),
    ],
)
def test_what_would_not_be_mixed_in_is_refused(
    options: dict[str, Any], said: str, generated: Path, tmp_path: Path
) -> None:
    given = {"generated_audio_text_dataset_folder": options.pop("folder", generated), **options}
    with pytest.raises(UserError, match=said):
        make("text-to-semantic", tmp_path / "a", **given)


def test_generated_texts_are_looked_at_before_training(generated: Path, tmp_path: Path) -> None:
    text = {"text": {"kind": "characters", "alphabet": " adefghilnorswy"}}
    with pytest.raises(UserError, match=r"The text of 0\.wav in .* holds .* which the characters tokenizer cannot say"):
        make("text-to-semantic", tmp_path / "a", model=text, generated_audio_text_dataset_folder=generated)


def test_layers_are_chosen_in_one_way(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="freeze_encoder_layers_below needs tuned_encoder_layers=null"):
        make("text-to-semantic", tmp_path / "a", freeze_encoder_layers_below=1, tuned_encoder_layers=2)
    plan = make("text-to-semantic", tmp_path / "a", freeze_encoder_layers_below=1).plan
    assert type(plan)(**plan.recorded()) == plan, "what a run has recorded can be followed again"
