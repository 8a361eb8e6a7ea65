"""The vocoder: a start that can be understood, chunks that equal the whole, and options that fit together."""

from pathlib import Path

import pytest
import torch
from voicebox_sounds import TINY, tiny_vocoder, vowel

from madrigal.engine.recipe import build_config, recipe_names
from madrigal.errors import UserError
from madrigal.tokenizers.mel_features import MelFeatures
from madrigal.verbs.systems import load_recipe, model_class
from madrigal.voicebox.vocoder.config import VocoderConfig
from madrigal.voicebox.vocoder.model import Vocoder, is_vocoder


def test_it_starts_near_griffin_lim() -> None:
    vocoder = tiny_vocoder().eval()
    log_mels = vocoder.statistics.raw(vowel()[None])
    rough, made = vocoder.rough(log_mels), vocoder(log_mels)
    assert made.shape == rough.shape
    assert not torch.equal(made, rough)
    assert (made - rough).square().mean() < 0.05 * rough.square().mean()


@pytest.mark.parametrize("chunk", [7, 1000])
def test_chunks_equal_the_whole(chunk: int) -> None:
    vocoder = tiny_vocoder().eval()
    torch.nn.init.normal_(vocoder.backbone.blocks[0].contract.weight, std=0.1)
    log_mels = vocoder.statistics.raw(vowel(0.5)[None])
    whole = vocoder(log_mels)
    pieces = list(vocoder.in_chunks(log_mels, chunk=chunk))
    assert [piece.shape[1] for piece in pieces[:-1]] == [chunk * 64] * (len(pieces) - 1)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-3, atol=1e-5)


def test_a_frame_beyond_its_context_changes_nothing() -> None:
    vocoder = tiny_vocoder().eval()
    log_mels = vocoder.statistics.raw(vowel()[None])
    changed = log_mels.clone()
    changed[:, 100:] += 1.0
    before, after = vocoder(log_mels), vocoder(changed)
    same = (100 - vocoder.context) * 64
    torch.testing.assert_close(before[:, :same], after[:, :same], rtol=1e-3, atol=1e-5)
    assert not torch.allclose(before[:, 99 * 64 :], after[:, 99 * 64 :], atol=1e-3)


def test_silence_is_finite_there_and_back() -> None:
    vocoder = tiny_vocoder()
    log_mels = vocoder.statistics.raw(torch.zeros(1, 1280)).requires_grad_()
    wave = vocoder(log_mels)
    wave.square().sum().backward()
    assert wave.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in vocoder.parameters())
    assert wave.abs().max() < 1e-2


def test_a_folder_says_that_it_is_a_vocoder(tmp_path: Path) -> None:
    vocoder = tiny_vocoder(discriminators=True)
    vocoder.save_pretrained(tmp_path / "vocoder")
    assert is_vocoder(tmp_path / "vocoder")
    assert model_class(str(tmp_path / "vocoder")) is Vocoder
    assert not is_vocoder("facebook/encodec_24khz")
    again = Vocoder.from_pretrained(tmp_path / "vocoder", discriminators=False)
    assert not again.discriminators
    log_mels = again.statistics.raw(vowel()[None])
    assert torch.equal(again(log_mels), vocoder(log_mels))


def test_every_recipe_builds_a_vocoder_of_its_size() -> None:
    sizes = {}
    for name in (name for name in recipe_names() if name.startswith("vocoder/")):
        recipe = load_recipe(name, ["data=recordings"])
        model = Vocoder(recipe.model, discriminators=False)
        sizes[name] = sum(p.numel() for p in model.parameters()) / 1e6
    assert sizes.keys() == {"vocoder/tiny", "vocoder/cpu", "vocoder/paper"}
    assert sizes["vocoder/tiny"] < 0.1 < 2 < sizes["vocoder/cpu"] < 5 < sizes["vocoder/paper"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kernel_size": 4}, "odd"),
        ({"n_fft": 100}, "twice the hop"),
        ({"multi_spectral_n_mels": (8,)}, "one each"),
        ({"loss_weights": {"commitment": 1.0}}, "no loss term 'commitment'"),
        ({"depht": 3}, "did you mean depth"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        build_config(VocoderConfig, {**TINY, **options}, "Vocoder")


def test_a_vocoder_that_is_asked_for_features_goes_on_learning() -> None:
    vocoder = tiny_vocoder().train()
    features = vocoder.features()
    assert vocoder.training
    assert all(parameter.requires_grad for parameter in vocoder.head.parameters())
    assert not any(parameter.requires_grad for parameter in features.parameters())
    assert not features.vocoder.training


def test_features_leave_statistics_and_sound_to_the_vocoder() -> None:
    vocoder = tiny_vocoder()
    vocoder.statistics.fit([vowel()])
    features = vocoder.features()
    assert isinstance(features, MelFeatures)
    assert torch.equal(features.mean, vocoder.statistics.mean)
    assert torch.equal(features.std, vocoder.statistics.std)
    encoded = features.encode(vowel(seed=1)[None])
    assert not torch.allclose(features.decode(encoded), features.griffin_lim(features.denormalise(encoded)), atol=1e-3)
