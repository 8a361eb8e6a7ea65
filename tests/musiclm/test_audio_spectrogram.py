"""The audio side: a front end that hears, augmentation that augments, patches, masks, and what it all costs."""

import math

import pytest
import torch
from small_mulans import PLAIN, RATE, audio_side, chord

from madrigal import AudioSpectrogramTransformer, UserError
from madrigal.layers import blocks
from madrigal.musiclm.audio_transformer import AudioConfig
from madrigal.musiclm.augmentation import SpecAugment, kept_patches, uniform_draws


def waves(count: int = 4, seconds: float = 1.0) -> torch.Tensor:
    return torch.stack([chord(number, seconds) for number in range(count)])


def seeded(**options: object) -> AudioSpectrogramTransformer:
    torch.manual_seed(0)
    return audio_side(**options)


def test_MU4_the_front_end_is_logarithmic() -> None:
    """Ten times as loud is one shift, the same in all bands and frames."""
    model = seeded()
    noisy = waves() + 0.05 * torch.randn(4, RATE)
    quiet, loud = (model.mels.raw(gain * noisy) for gain in (1.0, 10.0))
    assert quiet.shape == (4, RATE // model.config.hop, 64)
    torch.testing.assert_close(loud - quiet, torch.full_like(quiet, 2 * math.log(10.0)), atol=1e-3, rtol=0)


@pytest.mark.parametrize("hertz", [500.0, 1000.0, 2000.0, 4000.0, 6400.0])
def test_MU4_a_tone_is_heard_in_its_mel_band(hertz: float) -> None:
    """Bands are equally far apart in mel: 200/3 Hz each up to 1 kHz, from there on 27 of them to a factor of 6.4."""
    model = seeded(sample_rate=16000, spec_n_fft=1024)

    def mel(hz: float) -> float:
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    heard = model.mels.raw(torch.sin(2 * torch.pi * hertz * torch.arange(16000) / 16000)[None])
    band = float(heard.mean((0, 1)).argmax())
    assert band == pytest.approx(65 * mel(hertz) / mel(8000.0) - 1, abs=1.0)


def test_MU4_default_options_are_sane() -> None:
    config = AudioConfig()
    assert (config.n_mels, config.window, config.hop) == (128, 640, 320)
    assert config.spec_aug_freq_mask < config.n_mels / 2


def test_MU4_never_all_bands_are_hidden_and_each_item_has_its_own() -> None:
    augment = SpecAugment(stretch_factor=1.0, freq_mask=80, time_mask=0)
    frames, counts = torch.ones(200, 10, 65), torch.full((200,), 10)
    heard, _ = augment(frames, counts, uniform_draws(torch.arange(200), SpecAugment.draws))
    shown = heard.sum(2)[:, 0]
    assert float(shown.min()) >= 65 - 32
    assert len(set(shown.tolist())) > 10


def test_frames_are_hidden_up_to_half_of_a_clip() -> None:
    augment = SpecAugment(stretch_factor=1.0, freq_mask=0, time_mask=80)
    frames, counts = torch.ones(200, 20, 4), torch.full((200,), 12)
    heard, left = augment(frames, counts, uniform_draws(torch.arange(200), SpecAugment.draws))
    shown = heard[:, :12, 0].sum(1)
    assert float(shown.min()) == 6
    assert float(shown.max()) == 12
    assert torch.equal(left, counts)


def test_MU3_stretching_stretches() -> None:
    """A ramp is steeper when it is played faster, and its end comes sooner."""
    ramp = torch.arange(40.0)[None, :, None].expand(50, -1, 2)
    augment = SpecAugment(stretch_factor=0.8, freq_mask=0, time_mask=0)
    heard, counts = augment(ramp, torch.full((50,), 40), uniform_draws(torch.arange(50), SpecAugment.draws))
    slopes = heard[:, 20, 0] / 20
    assert float(slopes.min()) < 0.85
    assert float(slopes.max()) > 1.15
    assert bool(((slopes >= 0.79) & (slopes <= 1.26)).all())
    for row, count, slope in zip(heard[..., 0], counts.tolist(), slopes.tolist(), strict=True):
        assert count == min(40, int(39 / slope + 1e-3) + 1)
        assert float(row[count:].abs().sum()) == 0


@pytest.mark.parametrize(
    "option",
    [
        {"spec_aug_stretch_factor": 0.8},
        {"spec_aug_freq_mask": 30},
        {"spec_aug_time_mask": 20},
        {"patch_dropout_prob": 0.5},
    ],
)
def test_every_augmentation_changes_what_training_hears(option: dict[str, float]) -> None:
    seeds = torch.arange(4)
    plain, changed = seeded(**PLAIN), seeded(**{**PLAIN, **option})
    torch.testing.assert_close(plain(waves(), seeds=seeds, augment=True), plain(waves(), augment=False))
    torch.testing.assert_close(changed(waves(), augment=False), plain(waves(), augment=False))
    once, again = (changed(waves(), seeds=seeds, augment=True) for _ in range(2))
    other = changed(waves(), seeds=seeds + 9, augment=True)
    assert torch.equal(once, again)
    assert not torch.allclose(once, other, atol=1e-4)
    assert not torch.allclose(once, plain(waves(), augment=False), atol=1e-4)


def test_an_item_is_augmented_the_same_in_any_batch() -> None:
    model, seeds = seeded(spec_aug_stretch_factor=0.8), torch.arange(4)
    together = model(waves(), seeds=seeds, augment=True)
    padded = torch.nn.functional.pad(waves(), (0, RATE))
    lengths = torch.full((4,), RATE)
    alone = torch.cat([model(padded[i : i + 1], lengths[:1], seeds=seeds[i : i + 1], augment=True) for i in range(4)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_without_seeds_torchs_generator_decides() -> None:
    model = seeded()
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(model(waves(), augment=True))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("samples", [RATE, RATE - 77, 300, 20])
def test_padded_equals_unpadded(samples: int) -> None:
    model = seeded().eval()
    wave = waves()[:, :samples]
    padded = torch.nn.functional.pad(wave, (0, 2 * RATE - samples), value=0.7)
    torch.testing.assert_close(model(padded, torch.full((4,), samples)), model(wave), atol=1e-5, rtol=1e-4)


def test_lengths_differ_from_row_to_row() -> None:
    model = seeded().eval()
    lengths = torch.tensor([RATE, RATE // 2, RATE // 4, 100])
    together = model(waves(), lengths)
    alone = torch.cat([model(waves()[i : i + 1, :length]) for i, length in enumerate(lengths.tolist())])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_kept_patches_are_real_and_as_many_as_asked_for() -> None:
    real = torch.arange(20) < torch.tensor([20, 8, 1])[:, None]
    places, kept = kept_patches(real, 0.25, uniform_draws(torch.arange(3), 20))
    assert kept.sum(1).tolist() == [15, 6, 1]
    for row, here, size in zip(places, kept, (20, 8, 1), strict=True):
        chosen = row[here].tolist()
        assert chosen == sorted(set(chosen))
        assert max(chosen) < size


def test_MU18_positions_cost_no_square(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where patches are left out, each clip has places of its own; no tensor has patches squared numbers for each."""
    monkeypatch.setattr(blocks, "WHOLE", 0)  # attention itself takes its queries in blocks
    model = seeded(spec_hop_length=32, patch_size=4)
    wave = waves(2, 3.0)
    kept = round(0.75 * -(-(3 * RATE // 32) // 4) * 16)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        model(wave, augment=True)
    assert kept * model.dim <= largest < 2 * kept * kept
    assert model.rows.numel() == 16 * model.dim


def test_spectra_may_be_given_in_either_order() -> None:
    frames = torch.randn(2, 32, 64)
    first = seeded(accept_spec=True)
    second = seeded(accept_spec=True, accept_spec_time_first=False)
    torch.testing.assert_close(first(frames, augment=False), second(frames.transpose(1, 2), augment=False))
    with pytest.raises(UserError, match=r"\[batch, frames, 64\]; these are \[2, 32, 10\]"):
        first(frames[..., :10])
    with pytest.raises(UserError, match=r"\[batch, 64, frames\]; these are \[2, 100\]"):
        second(torch.randn(2, 100))


@pytest.mark.parametrize(
    "option",
    [
        {"spec_n_fft": 512},
        {"spec_win_length": 128, "spec_hop_length": 128},
        {"spec_hop_length": 64},
        {"spec_power": 1.0},
        {"spec_n_mels": 32},
        {"patch_size": (8, 16)},
        {"ff_mult": 2.0},
        {"sample_rate": 8000},
    ],
)
def test_every_option_changes_what_is_heard(option: dict[str, object]) -> None:
    assert not torch.equal(seeded().eval()(waves()), seeded(**option).eval()(waves()))


@pytest.mark.parametrize("option", [{"attn_dropout": 0.5}, {"ff_dropout": 0.5}])
def test_dropout_acts_in_training_alone(option: dict[str, float]) -> None:
    model = seeded(**PLAIN, **option)
    assert not torch.equal(model(waves()), model(waves()))
    model.eval()
    assert torch.equal(model(waves()), model(waves()))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"spec_n_mels": 60}, "cannot be cut into patches"),
        ({"spec_win_length": 512}, "longer than spec_n_fft"),
        ({"spec_hop_length": 300}, "skips samples"),
        ({"spec_pad_mode": "reflect"}, "the same alone and in a batch"),
        ({"spec_centre": True}, "did you mean"),
    ],
)
def test_options_that_do_not_fit_are_told(option: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        audio_side(**option)


def test_statistics_are_kept_with_the_model() -> None:
    model = seeded()
    model.mels.fit(list(waves()))
    frames = model.frames(waves())[0]
    assert float(frames.mean().abs()) < 0.05
    other = seeded()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(waves()), model.eval()(waves()))
