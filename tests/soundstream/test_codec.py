"""SoundStream as its users call it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_codecs import DOMAINS, TINY, noise, tiny_codec
from torch import Tensor

from madrigal.soundstream.codec import AudioLMSoundStream, MusicLMSoundStream, SoundStream

QUANTIZERS: dict[str, dict[str, Any]] = {
    "vq": {},
    "grouped vq": {"rq_groups": 2},
    "factorised": {"factorised_dim": 4, "l2_normalised_codes": True},
    "lfq": {"use_lookup_free_quantizer": True, "rq_groups": 2},
    "fsq": {"codebook_size": None, "use_finite_scalar_quantizer": True, "finite_scalar_quantizer_levels": (4, 3)},
}


@pytest.fixture(params=QUANTIZERS, ids=lambda name: name)
def codec(request: pytest.FixtureRequest) -> SoundStream:
    return tiny_codec(**QUANTIZERS[request.param]).eval()


def test_the_script_of_the_older_library() -> None:
    """Its options, its shapes and its own check; only the widths are smaller."""
    soundstream = SoundStream(
        codebook_size=4096,
        rq_num_quantizers=8,
        rq_groups=2,
        use_lookup_free_quantizer=True,
        use_finite_scalar_quantizer=False,
        attn_window_size=128,
        attn_depth=2,
        channels=2,
        codebook_dim=32,
        discriminators=False,
    )
    soundstream.eval()
    recons = soundstream(torch.randn(10080), return_recons_only=True)
    assert recons.shape == (1, 10080)
    audio = torch.randn(1, 64 * 320)
    codes = soundstream.tokenize(audio)
    assert codes.shape == (1, 64, 16)
    assert torch.allclose(
        soundstream.decode_from_codebook_indices(codes), soundstream(audio, return_recons_only=True), atol=1e-6
    )


@pytest.mark.parametrize("domain", DOMAINS)
def test_codes_decode_to_what_forward_gives(domain: str) -> None:
    codec = tiny_codec(**DOMAINS[domain])
    audio = noise(2, 1, 160)
    whole = codec(audio, return_recons_only=True)
    torch.testing.assert_close(codec.decode_from_codebook_indices(codec.tokenize(audio)), whole, atol=1e-5, rtol=1e-4)
    quantized, _, _ = codec(audio, return_encoded=True)
    torch.testing.assert_close(codec.decode(quantized), whole, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(codec.decode(codec.latents(audio), quantize=True), whole, atol=1e-5, rtol=1e-4)


def test_AM30_codes_have_one_shape(codec: SoundStream) -> None:
    audio = noise(2, 160)
    wanted = (2, 20, 4 * codec.rq_groups)
    _, encoded, _ = codec(audio, return_encoded=True)
    for codes in (codec.encode(audio), codec.tokenize(audio), codec(audio, return_codes_only=True), encoded):
        assert codes.shape == wanted
        assert codes.dtype == torch.int64
        assert 0 <= codes.min() <= codes.max() < codec.codebook_size
    with pytest.raises(ValueError, match="batch, frames, quantizers"):
        codec.decode_from_codebook_indices(encoded[None])


def test_AM12_the_first_codes_are_the_coarse_ones(codec: SoundStream) -> None:
    audio = noise(2, 160)
    codes = codec.encode(audio)
    for levels in (1, 2, 3):
        coarse = codec.encode(audio, num_quantizers=levels)
        assert torch.equal(coarse, codes[..., : levels * codec.rq_groups])
        assert codec.decode_from_codebook_indices(coarse).shape == (2, 1, 160)


def test_AM12_more_codes_come_closer(codec: SoundStream) -> None:
    latents = codec.latents(noise(8, 160)).detach()
    codec.quantizer.initialize(latents.flatten(0, 1))
    codes = codec.quantizer(latents).codes
    kept = [codes[..., : levels * codec.rq_groups] for levels in (1, 2, 4)]
    errors = [(codec.quantizer.decode(part) - latents).square().mean().item() for part in kept]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("samples", [1, 7, 8, 83])
def test_as_many_samples_come_out_as_go_in(domain: str, samples: int) -> None:
    codec = tiny_codec(**DOMAINS[domain])
    for shape, wanted in {
        (samples,): (1, samples),
        (2, samples): (2, 1, samples),
        (2, 1, samples): (2, 1, samples),
    }.items():
        assert codec(noise(*shape), return_recons_only=True).shape == wanted


@pytest.mark.parametrize("domain", DOMAINS)
def test_AM24_stereo_in_stereo_out(domain: str) -> None:
    codec = tiny_codec(discriminators=True, input_channels=2, discr_spectrogram_n_ffts=(64,), **DOMAINS[domain])
    wave = noise(3, 2, 84)
    assert codec(wave, return_recons_only=True).shape == wave.shape
    assert codec(wave[0], return_recons_only=True).shape == wave[0].shape
    changed = wave.clone()
    changed[:, 1] *= -1
    assert not torch.equal(codec.latents(wave), codec.latents(changed))
    codec(wave).backward()
    assert codec(wave, return_discr_loss=True, apply_grad_penalty=True).isfinite()
    with pytest.raises(ValueError, match=r"\[batch, 2, samples\]"):
        codec(noise(3, 1, 84))


def test_AM26_denoising_aims_at_the_clean_target() -> None:
    codec = tiny_codec(discriminators=True, loss_weights={"mel": 1.0}).eval()
    noisy, clean = noise(1, 1, 320), noise(1, 1, 320, seed=2)
    made, _ = codec.autoencode(noisy, collect=False, is_denoising=True)
    _, towards_clean = codec(noisy, clean, is_denoising=True, return_loss_breakdown=True)
    _, by_hand = codec(noisy, made.detach(), is_denoising=True, return_loss_breakdown=True)
    assert towards_clean.multi_spectral_recon > 0.1
    for term in (by_hand.recon, by_hand.multi_spectral_recon, by_hand.feature):
        assert term.item() == pytest.approx(0, abs=1e-5)
    with pytest.raises(ValueError, match="target"):
        codec(noisy, is_denoising=True)


def test_AM26_denoising_starts_as_the_identity_and_works_from_codes() -> None:
    codec = tiny_codec()
    audio = noise(1, 1, 160)
    plain = codec(audio, return_recons_only=True)
    for is_denoising in (True, False):
        torch.testing.assert_close(codec(audio, is_denoising=is_denoising, return_recons_only=True), plain)
    with torch.no_grad():
        codec.decoder_film.scale[1] *= 2
    codes = codec.encode(audio, is_denoising=True)
    denoised = codec.decode_from_codebook_indices(codes, is_denoising=True)
    assert not torch.allclose(denoised, plain, atol=1e-4)
    torch.testing.assert_close(denoised, codec(audio, is_denoising=True, return_recons_only=True))
    torch.testing.assert_close(codec.decode_from_codebook_indices(codes, is_denoising=False), plain)


@pytest.mark.parametrize("training", [True, False])
def test_mode_changes_no_answer_and_no_answer_changes_the_mode(training: bool) -> None:
    codec = tiny_codec().train(training)
    audio, before = noise(2, 160), {k: v.clone() for k, v in codec.state_dict().items()}
    answers: list[Tensor] = [codec.tokenize(audio), codec(audio, return_recons_only=True), codec.encode(audio)]
    assert codec.training == training
    torch.testing.assert_close(
        answers, [codec.eval().tokenize(audio), codec(audio, return_recons_only=True), codec.encode(audio)]
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in codec.state_dict().items())


def test_a_loop_of_ones_own_trains_everything() -> None:
    codec = tiny_codec(discriminators=True, discr_spectrogram_n_ffts=(64,), use_complex_stft_discr=False)
    audio = noise(4, 800)
    optimizer = torch.optim.Adam(codec.non_discr_parameters(), lr=3e-3)
    first = {name: tensor.clone() for name, tensor in codec.quantizer.state_dict().items()}
    distances = []
    for _ in range(25):
        loss, terms = codec(audio, return_loss_breakdown=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        distances.append(terms.recon.item())
    assert distances[-1] < distances[0]
    assert any(not torch.equal(tensor, first[name]) for name, tensor in codec.quantizer.state_dict().items())


def test_audio_of_another_rate_is_resampled() -> None:
    codec = tiny_codec()
    wave = torch.sin(torch.arange(3200) * 0.05)
    made = codec(wave, return_recons_only=True, input_sample_hz=32000)
    assert made.shape == (1, 1600)
    assert codec(wave, return_codes_only=True, input_sample_hz=32000).shape == (1, 200, 4)


def test_curtailing_from_the_left_aligns_frames_with_the_end() -> None:
    codec = tiny_codec()
    wave = noise(1, 83)
    right, left = codec.encode(wave), codec(wave, return_codes_only=True, curtail_from_left=True)
    assert torch.equal(left, codec.encode(torch.nn.functional.pad(wave, (5, 0))))
    assert not torch.equal(left, right)
    assert codec(wave, return_recons_only=True, curtail_from_left=True).shape == (1, 1, 83)


def test_numbers_that_others_ask_for() -> None:
    codec = tiny_codec(rq_groups=2)
    assert (codec.downsample_factor, codec.seq_len_multiple_of, codec.frame_rate) == (8, 8, 2000)
    assert codec.bitrate() == 2000 * 4 * 2 * 4
    assert codec.bitrate(1) == codec.bitrate() / 4
    assert codec.latency == 0
    assert tiny_codec(head="istft").latency == 8
    assert (codec.codebook_size, codec.num_quantizers, codec.rq_groups, codec.target_sample_hz) == (16, 4, 2, 16000)


def test_presets_follow_the_papers() -> None:
    small = {name: TINY[name] for name in ("codebook_dim", "channels", "complex_stft_discr_kwargs")}
    audiolm = AudioLMSoundStream(**small, discriminators=False)
    musiclm = MusicLMSoundStream(**small, discriminators=False)
    for codec, rate in ((audiolm, 16000), (musiclm, 24000)):
        assert (codec.target_sample_hz, codec.frame_rate, codec.num_quantizers) == (rate, 50, 12)
    assert AudioLMSoundStream(**small, rq_num_quantizers=3, discriminators=False).num_quantizers == 3


def test_sizes_of_the_paper() -> None:
    with torch.device("meta"):
        codec = SoundStream(channels=16, codebook_size=1024, discriminators=False)
    assert sum(p.numel() for p in codec.non_discr_parameters() if p.requires_grad) / 1e6 == pytest.approx(9.92, abs=0.1)


def test_AM28_saved_codec_rebuilds_itself_without_pickle(tmp_path: Path, codec: SoundStream) -> None:
    codec.save(tmp_path / "codec")
    assert sorted(path.name for path in (tmp_path / "codec").iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "codec" / "config.json").read_text())["rq_groups"] == codec.rq_groups
    again = SoundStream.init_and_load_from(tmp_path / "codec")
    assert not again.training
    audio = noise(1, 160)
    assert torch.equal(again.tokenize(audio), codec.tokenize(audio))
    torch.testing.assert_close(again(audio, return_recons_only=True), codec(audio, return_recons_only=True))


def test_options_may_come_as_config_as_mapping_or_both() -> None:
    config = tiny_codec().config
    torch.manual_seed(0)
    assert SoundStream(config, discriminators=False).config == config
    assert SoundStream(config.model_dump(), discriminators=False).config == config
    assert SoundStream(config, discriminators=False, rq_groups=2).config.rq_groups == 2


def test_waves_that_cannot_be_coded_are_refused() -> None:
    codec = tiny_codec()
    for shape in ((0,), (1, 2, 80), (1, 1, 1, 80)):
        with pytest.raises(ValueError, match=r"\[batch, 1, samples\]"):
            codec.encode(torch.zeros(*shape))


def test_frames_behind_the_length_count_in_no_commitment() -> None:
    codec = tiny_codec()
    wave = noise(2, 1, 160)
    wave[1, :, 80:] = 0
    short, lengths = wave.clone(), torch.tensor([160, 80])
    short[1, :, 80:] = 3.0
    commitments = [codec.autoencode(w, collect=False, lengths=lengths)[1].commitment for w in (wave, short)]
    torch.testing.assert_close(*commitments)
