"""HuBERT, WavLM, wav2vec 2.0 and Whisper, on tiny random checkpoints that transformers writes to disk."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sounds import fitted, noise

from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.tokenizers import load_tokenizer
from madrigal.tokenizers.huggingface import (
    FairseqVQWav2Vec,
    HubertWithKmeans,
    HuggingFaceConfig,
    HuggingFaceTokenizer,
)
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe
from madrigal.tokenizers.whisper import WhisperConfig, WhisperTokenizer
from madrigal.tokenizers.whisper_encoder import load_whisper

transformers = pytest.importorskip("transformers")

SPEECH = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": [8] * 7,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}
WHISPER = {
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "decoder_start_token_id": 0,
}


def speech_checkpoint(family: str, folder: Path, seed: int = 0, **options: Any) -> Path:
    torch.manual_seed(seed)
    config = getattr(transformers, f"{family}Config")(**SPEECH, **options)
    getattr(transformers, f"{family}Model")(config).save_pretrained(folder)
    return folder


def whisper_checkpoint(folder: Path) -> Path:
    torch.manual_seed(0)
    transformers.WhisperModel(transformers.WhisperConfig(**WHISPER)).save_pretrained(folder)
    return folder


def tokenizer(checkpoint: Path, **options: Any) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(HuggingFaceConfig(checkpoint=str(checkpoint), codebook_size=8, layer=2, **options))


@pytest.mark.parametrize("family", ["Hubert", "WavLM", "Wav2Vec2"])
@pytest.mark.parametrize("stable", [False, True])
def test_features_are_those_of_the_chosen_layer(family: str, stable: bool, tmp_path: Path) -> None:
    options = {"do_stable_layer_norm": stable, "feat_extract_norm": "layer" if stable else "group"}
    folder = speech_checkpoint(family, tmp_path / "model", **options)
    whole = transformers.AutoModel.from_pretrained(folder).eval()
    wave = noise(1, 6400)
    with torch.no_grad():
        expected = whole(torch.nn.functional.pad(wave, (40, 40)), output_hidden_states=True).hidden_states[2]
    made = tokenizer(folder)
    found = made.features(wave)
    assert found.shape == (1, 20, 16)
    assert torch.allclose(found, expected, atol=1e-5)
    assert len(made.loaded.encoder.layers) == 2  # type: ignore[union-attr, arg-type]


def test_a_row_of_a_padded_batch_equals_the_row_alone(tmp_path: Path) -> None:
    """Group norm over time makes a padded HuBERT differ: rows are computed alone."""
    made = fitted(tokenizer(speech_checkpoint("Hubert", tmp_path / "model")))
    batch, lengths = noise(3, 8000), torch.tensor([8000, 5000, 1])
    ids, counts = made.tokenize(batch, lengths)
    assert counts.tolist() == [25, 16, 1]
    for row, wave, length, count in zip(ids, batch, lengths, counts, strict=True):
        assert torch.equal(row[:count], made.tokenize(wave[None, :length])[0][0])


def test_AM32_the_rate_and_the_samples_of_a_token_are_the_real_ones(tmp_path: Path) -> None:
    made = FairseqVQWav2Vec(speech_checkpoint("Wav2Vec2", tmp_path / "model"), output_layer=1)
    assert (made.target_sample_hz, made.downsample_factor, made.frame_rate) == (16000, 320, 50.0)


def test_only_the_centroids_are_saved(tmp_path: Path) -> None:
    made = fitted(tokenizer(speech_checkpoint("Hubert", tmp_path / "model"), normalise=True))
    folder = made.save_pretrained(tmp_path / "tokens")
    assert (folder / "model.safetensors").stat().st_size < 2000
    again = load_tokenizer(folder)
    wave = noise(1, 6400)
    assert torch.equal(again.tokenize(wave)[0], made.tokenize(wave)[0])
    assert again.fingerprint() == made.fingerprint()


def test_other_weights_than_those_of_the_centroids_are_refused(tmp_path: Path) -> None:
    made = fitted(tokenizer(speech_checkpoint("Hubert", tmp_path / "model")))
    folder = made.save_pretrained(tmp_path / "tokens")
    speech_checkpoint("Hubert", tmp_path / "model", seed=1)
    with pytest.raises(UserError, match="not those that these centroids"):
        load_tokenizer(folder).tokenize(noise(1, 6400))


def test_moving_a_checkpoint_changes_no_fingerprint(tmp_path: Path) -> None:
    first = fitted(tokenizer(speech_checkpoint("Hubert", tmp_path / "one")))
    second = fitted(tokenizer(speech_checkpoint("Hubert", tmp_path / "two")))
    assert first.fingerprint() == second.fingerprint()


def test_the_older_name_leads_to_it(tmp_path: Path) -> None:
    folder = speech_checkpoint("Hubert", tmp_path / "model")
    save_file({"centroids": torch.randn(12, 16)}, tmp_path / "kmeans.safetensors")
    made = HubertWithKmeans(folder, tmp_path / "kmeans.safetensors", output_layer=2, seq_len_multiple_of=320)
    assert made.codebook_size == 12
    assert made(noise(2, 6500)).shape == (2, 20)
    fitted(made).save_pretrained(tmp_path / "run")
    assert torch.equal(HubertWithKmeans(folder, tmp_path / "run", output_layer=2).centroids, made.centroids)


def test_AM28_a_pickled_kmeans_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "kmeans.bin").write_bytes(b"\x80\x04\x95")
    with pytest.raises(UserError, match="pickled"):
        HubertWithKmeans(speech_checkpoint("Hubert", tmp_path / "model"), tmp_path / "kmeans.bin")


def test_wrong_layers_and_wrong_models_are_told(tmp_path: Path) -> None:
    folder = speech_checkpoint("Hubert", tmp_path / "model")
    with pytest.raises(UserError, match="at least 9"):
        HubertWithKmeans(folder).loaded  # noqa: B018
    with pytest.raises(UserError, match="There is no checkpoint folder"):
        HubertWithKmeans(tmp_path / "nothing").loaded  # noqa: B018


def test_a_hub_name_costs_nothing_until_it_is_used() -> None:
    made = HubertWithKmeans("facebook/hubert-base-ls960")
    assert (made.downsample_factor, made.backbone) == (320, None)


def test_kmeans_recipe_over_a_checkpoint(recordings: Path, tmp_path: Path) -> None:
    folder = speech_checkpoint("WavLM", tmp_path / "model")
    chosen = f"{{kind: huggingface, checkpoint: {folder}, layer: 1, codebook_size: 6}}"
    values = read_recipe("kmeans/tiny", [f"data={recordings}", f"model={chosen}"])
    build_config(KmeansRecipe, values, "x").trainer(tmp_path / "run").train()
    made = load_tokenizer(tmp_path / "run")
    assert (made.kind, made.frame_rate, made.is_fitted) == ("huggingface", 50.0, True)


# Whisper.


def test_whisper_spectra_and_encoder_equal_those_of_transformers(tmp_path: Path) -> None:
    folder = whisper_checkpoint(tmp_path / "whisper")
    encoder = load_whisper(folder, 2)
    wave = torch.nn.functional.pad(noise(1, 50000), (0, 480000 - 50000))
    extractor = transformers.WhisperFeatureExtractor()
    mels = torch.from_numpy(np.asarray(extractor(wave[0].numpy(), sampling_rate=16000).input_features))
    assert torch.allclose(encoder.log_mels(wave), mels, atol=2e-4)
    whole = transformers.WhisperModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = whole.encoder(mels, output_hidden_states=True).hidden_states
        assert torch.allclose(load_whisper(folder, 1)(mels), expected[1], atol=1e-4)
        assert torch.allclose(whole.encoder.layer_norm(encoder(mels)), expected[2], atol=1e-4)


def test_an_openai_file_gives_the_same_encoder(tmp_path: Path) -> None:
    folder = whisper_checkpoint(tmp_path / "whisper")
    torch.save(as_openai(transformers.WhisperModel.from_pretrained(folder)), tmp_path / "tiny.pt")
    left, right = load_whisper(folder, 2), load_whisper(tmp_path / "tiny.pt", 2)
    assert all(torch.equal(tensor, right.state_dict()[name]) for name, tensor in left.state_dict().items())


def as_openai(model: Any) -> dict[str, Any]:
    """The encoder under the names of OpenAI's files."""
    names = {
        "self_attn.q_proj": "attn.query",
        "self_attn.k_proj": "attn.key",
        "self_attn.v_proj": "attn.value",
        "self_attn.out_proj": "attn.out",
        "self_attn_layer_norm": "attn_ln",
        "final_layer_norm": "mlp_ln",
        "fc1": "mlp.0",
        "fc2": "mlp.2",
        "embed_positions.weight": "positional_embedding",
        "layers.": "blocks.",
    }
    weights = {}
    for name, tensor in model.encoder.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        weights[f"encoder.{name}"] = tensor.clone()
    return {"dims": {"n_audio_head": 2}, "model_state_dict": weights}


def test_whisper_tokens(tmp_path: Path) -> None:
    config = WhisperConfig(
        checkpoint=str(whisper_checkpoint(tmp_path / "w")), layer=1, codebook_size=8, window_seconds=5
    )
    made = fitted(WhisperTokenizer(config))
    assert (made.downsample_factor, made.frame_rate) == (640, 25.0)
    batch, lengths = noise(2, 8 * 16000), torch.tensor([8 * 16000, 9000])
    ids, counts = made.tokenize(batch, lengths)
    assert counts.tolist() == [200, 15]
    assert torch.equal(ids[1, :15], made.tokenize(batch[1:, :9000])[0][0])
    again = load_tokenizer(made.save_pretrained(tmp_path / "tokens"))
    assert torch.equal(again.tokenize(batch)[0], made.tokenize(batch)[0])


def test_what_is_no_whisper_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"nothing")
    with pytest.raises(UserError, match="neither"):
        load_whisper(tmp_path / "x.pt", 1)
    with pytest.raises(UserError, match="no Whisper checkpoint"):
        load_whisper(speech_checkpoint("Hubert", tmp_path / "model"), 1)
    with pytest.raises(UserError, match="2 layers"):
        load_whisper(whisper_checkpoint(tmp_path / "w"), 3)


# What importing costs.


def test_AM31_importing_and_loading_change_no_logging_and_no_warnings(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), root.disabled, list(warnings.filters))
    tokenizer(speech_checkpoint("Hubert", tmp_path / "model")).loaded  # noqa: B018
    assert (root.level, list(root.handlers), root.disabled, list(warnings.filters)) == before


def test_AM35_without_transformers_everything_else_works(tmp_path: Path) -> None:
    script = """
import sys
import madrigal.tokenizers.kmeans_recipe, madrigal.tokenizers.masked_prediction_recipe
assert "transformers" not in sys.modules  # nothing foreign is loaded before it is needed
sys.modules["transformers"] = None
import madrigal.tokenizers, madrigal.tokenizers.huggingface, madrigal.tokenizers.whisper, madrigal.tokenizers.codecs
import madrigal.tokenizers.encodec, madrigal.tokenizers.dac, madrigal.tokenizers.kmeans_recipe
from madrigal.tokenizers.encodec import EncodecWrapper
try:
    EncodecWrapper().loaded
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "UserError" in done.stdout
    assert "pip install 'madrigal[pretrained]'" in done.stdout
