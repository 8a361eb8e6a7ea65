"""Scripts that were written for spear-tts-pytorch: its README and its trainers, with their import lines changed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import madrigal
from madrigal import (
    GeneratedAudioTextDataset,
    MockDataset,
    SemanticToTextDatasetGenerator,
    SemanticToTextTrainer,
    SemanticToTextWrapper,
    SpeechSpeechPretrainer,
    SpeechSpeechPretrainWrapper,
    TextToSemantic,
    TextToSemanticTrainer,
    TextToSemanticWrapper,
)
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig

KEYWORDS = {
    "num_train_steps": 2,
    "num_warmup_steps": 1,
    "batch_size": 2,
    "lr": 3e-4,
    "initial_lr": 1e-5,
    "grad_accum_every": 1,
    "wd": 0.0,
    "max_grad_norm": 0.5,
    "valid_frac": 0.2,
    "random_split_seed": 42,
    "log_every": 10,
    "save_results_every": 100,
    "save_model_every": 1000,
    "accelerate_kwargs": {},
    "split_batches": False,
    "drop_last": False,
    "force_clear_prev_results": None,
}
"""What all three trainers of the older library take."""


@pytest.fixture
def wav2vec() -> MelKmeans:
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=20))
    tokenizer.centroids.normal_()
    return tokenizer


def model_of(wav2vec: Any, **options: Any) -> TextToSemantic:
    torch.manual_seed(0)
    return TextToSemantic(
        wav2vec=wav2vec,
        dim=32,
        num_text_token_ids=256,
        heads=8,
        dim_head=8,
        target_kv_heads=2,
        source_depth=1,
        target_depth=1,
        **options,
    )


def test_the_readme(wav2vec: MelKmeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves are read into texts, which are stored and found again."""
    monkeypatch.chdir(tmp_path)
    model = model_of(wav2vec)
    # An untrained model would seldom find an end.
    options = {**KEYWORDS, "num_train_steps": 40, "lr": 1e-2, "batch_size": 6, "freeze_encoder": False}
    SemanticToTextTrainer(model, dataset=Speech(text=True), results_folder="./reader", **options).train()
    ds = MockDataset(10)
    dataset_generator = SemanticToTextDatasetGenerator(model=model, dataset=ds, folder="./output_folder")
    made = dataset_generator()
    generated_dataset = GeneratedAudioTextDataset(folder="./output_folder")
    assert 1 <= len(generated_dataset) == len(made) <= 10
    semantic, text = generated_dataset[0]
    assert int(semantic.max()) < 20
    assert int(text.max()) < 256


class Speech(torch.utils.data.Dataset[Any]):
    def __init__(self, *, text: bool) -> None:
        self.text = text

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        semantic = (torch.arange(5 + index % 3) * 3 + index) % 20
        return (semantic, torch.arange(1 + index % 4)) if self.text else semantic


def test_three_trainers_one_after_another(wav2vec: MelKmeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_of(wav2vec, attn_flash=True, semantic_pad_id=-1, text_pad_id=0)
    pretrain = SpeechSpeechPretrainer(
        model, wav2vec, dataset=Speech(text=False), deletion_prob=0.6, reconstruct_seq=False, mask_id=None,
        results_folder="./results/1", **KEYWORDS,
    )  # fmt: skip
    pretrain.train()
    read = SemanticToTextTrainer(model, dataset=Speech(text=True), results_folder="./results/2", **KEYWORDS)
    read.train()
    read.save("./read")
    speak = TextToSemanticTrainer(
        model, dataset=Speech(text=True), freeze_encoder_layers_below=0, dataset_delimiter_id=-1,
        should_train_early_exit_layer_if_available=True, results_folder="./results/3", **KEYWORDS,
    )  # fmt: skip
    speak.train()
    read.load("./read", restore_optimizer=True)
    for trainer in (pretrain, read, speak):
        assert trainer.step == 2
        assert trainer.is_main
        assert not trainer.is_distributed


def test_the_wrappers(wav2vec: MelKmeans) -> None:
    model = model_of(wav2vec, target_early_exit_layer=None)
    semantic, text = torch.tensor([[1, 5, 2, 7], [3, 2, 9, -1]]), torch.tensor([[1, 2], [3, -1]])
    torch.manual_seed(0)
    for loss, logits in (
        SpeechSpeechPretrainWrapper(model, wav2vec)(semantic),
        SpeechSpeechPretrainWrapper(model=model, deletion_prob=0.5, reconstruct_seq=True, mask_id=0)(semantic),
        SemanticToTextWrapper(model=model)(semantic, text),
        TextToSemanticWrapper(model=model)(text, semantic),
    ):
        assert loss.isfinite()
        assert logits.shape[-1] in (21, 257)
        loss.backward()


def test_generate_returns_what_older_scripts_ask_for(wav2vec: MelKmeans) -> None:
    model = model_of(wav2vec)
    source = torch.tensor([[1, 5, 2, 7], [3, 2, -1, -1]])
    read, ids, mask = model.generate(
        source, source_type="speech", target_type="text", temperature=1.0, max_length=3, cond_scale=1.0,
        return_source=True, return_target_mask=True,
    )  # fmt: skip
    assert read.tolist() == source.tolist()
    assert ids.shape == mask.shape
    assert (ids[~mask] == -1).all()
    waves = torch.randn(1, 4000)
    heard = model.generate(waves, source_type="speech", target_type="text", max_length=3, return_target_mask=True)
    assert len(heard) == 2


def test_older_names_import_from_the_top() -> None:
    for name in (
        "TextToSemantic", "SpeechSpeechPretrainWrapper", "SemanticToTextWrapper", "TextToSemanticWrapper",
        "SemanticToTextDatasetGenerator", "SpeechSpeechPretrainer", "SemanticToTextTrainer", "TextToSemanticTrainer",
        "GeneratedAudioTextDataset", "MockDataset",
    ):  # fmt: skip
        assert name in dir(madrigal)
        assert inspect.isclass(getattr(madrigal, name))


def test_a_mock_dataset_gives_waves() -> None:
    first, again = MockDataset(3)[0], MockDataset(3)[0]
    assert torch.equal(first, again)
    assert first.shape == (1024,)
    assert not torch.equal(first, MockDataset(3)[1])
    with pytest.raises(IndexError):
        MockDataset(3)[3]
