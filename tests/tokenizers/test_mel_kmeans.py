"""The features of the plain tokenizer, and what training asks of them."""

from __future__ import annotations

import pytest
import torch
from sounds import fitted, noise, tiny_mel_kmeans

from madrigal.tokenizers.mel_frames import MelFrames, UtteranceNorm


def test_frames_lie_on_a_grid() -> None:
    spectra = MelFrames(16000, hop=160, n_fft=512, n_mels=20)
    wave = torch.zeros(1, 16000)
    wave[0, 8000:8160] = noise(160)
    levels = spectra(wave)[0].amax(-1)
    assert len(levels) == 100
    assert int(levels.argmax()) == 50
    assert (levels > levels.min()).nonzero().flatten().tolist() == [48, 49, 50, 51, 52]  # 512 samples hear 5 hops


@pytest.mark.parametrize("options", [{}, {"cepstra": None, "n_mels": 20}, {"deltas": False}, {"context": 3}])
def test_feature_sizes(options: dict[str, int | None]) -> None:
    tokenizer = tiny_mel_kmeans(**options)
    assert tokenizer.features(noise(2, 6400)).shape == (2, 10, tokenizer.feature_dim)


def test_a_louder_recording_has_nearly_the_same_features() -> None:
    tokenizer = tiny_mel_kmeans(prior_seconds=0.0)
    wave = noise(1, 6400)
    assert torch.allclose(tokenizer.features(wave), tokenizer.features(3 * wave), atol=1e-2)


def test_the_norm_of_few_frames_stays_near_the_corpus() -> None:
    norm = UtteranceNorm(1, prior=10)
    norm.fit(torch.tensor([[-1.0], [1.0]]))
    short = norm(torch.full((1, 1, 1), 5.0))
    long = norm(torch.full((1, 1000, 1), 5.0))
    assert float(short.mean()) > 3
    assert abs(float(long.mean())) < 0.1


@pytest.mark.parametrize("context", [0, 1, 3])
def test_the_classes_of_a_padded_batch_are_the_tokens_of_the_rows(context: int) -> None:
    tokenizer = fitted(tiny_mel_kmeans(context=context))
    wave = noise(2, 6400)
    wave[1, 3200:] = 0
    mask = torch.arange(40) < torch.tensor([[40], [20]])
    alone = tokenizer.features(wave[1:, :3200])
    assert torch.allclose(tokenizer.features(wave, mask)[1:, :5], alone, atol=1e-5)
    classes = tokenizer.classes(wave, mask)
    assert torch.equal(classes[:1], tokenizer.tokenize(wave[:1])[0])
    assert torch.equal(classes[1:, :5], tokenizer.tokenize(wave[1:, :3200])[0])
