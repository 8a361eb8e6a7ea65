"""One interface for all codecs: ours, EnCodec and DAC, on tiny random checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sounds import noise

from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.tokenizers import load_codec
from madrigal.tokenizers.dac import DACWrapper
from madrigal.tokenizers.encodec import LEVEL, EncodecWrapper

transformers = pytest.importorskip("transformers")

ENCODEC = {
    "num_filters": 2,
    "hidden_size": 8,
    "codebook_dim": 8,
    "codebook_size": 16,
    "upsampling_ratios": [4, 2],
    "num_lstm_layers": 1,
}


def encodec_24(folder: Path) -> Path:
    return _encodec(folder, sampling_rate=800, audio_channels=1, target_bandwidths=[0.4, 0.8, 1.6])


def encodec_48(folder: Path) -> Path:
    options: dict[str, Any] = {"norm_type": "time_group_norm", "use_causal_conv": False, "normalize": True}
    return _encodec(
        folder,
        sampling_rate=1600,
        audio_channels=2,
        target_bandwidths=[0.8, 1.6],
        chunk_length_s=1.0,
        overlap=0.01,
        **options,
    )


def _encodec(folder: Path, **options: Any) -> Path:
    torch.manual_seed(0)
    model = transformers.EncodecModel(transformers.EncodecConfig(**ENCODEC, **options))
    with torch.no_grad():
        latents = model.encoder(noise(1, options["audio_channels"], 1600))
    for layer in model.quantizer.layers:  # transformers starts them at zero
        chosen = torch.randint(latents.shape[-1], (16,))
        layer.codebook.embed.copy_(latents[0, :, chosen].T)
    model.save_pretrained(folder)
    return folder


def dac(folder: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.DacConfig(
        encoder_hidden_size=4,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=16,
        upsampling_ratios=[4, 2],
        n_codebooks=3,
        codebook_size=16,
        codebook_dim=4,
        sampling_rate=800,
    )
    transformers.DacModel(config).save_pretrained(folder)
    return folder


def soundstream(folder: Path) -> Path:
    torch.manual_seed(0)
    codec = SoundStream(
        target_sample_hz=800,
        frontend="stft",
        head="istft",
        strides=(8,),
        channel_mults=(2,),
        spectral_dim=8,
        spectral_depth=1,
        codebook_dim=8,
        codebook_size=16,
        rq_num_quantizers=3,
        use_local_attn=False,
        discriminators=False,
        multi_spectral_window_powers_of_two=(5,),
        multi_spectral_n_ffts=32,
        multi_spectral_n_mels=4,
    )
    codec.quantizer.initialize(torch.randn(100, 8))
    return codec.save_pretrained(folder)


MADE = {"encodec-24": encodec_24, "encodec-48": encodec_48, "dac": dac, "soundstream": soundstream}
each_codec = pytest.mark.parametrize("name", MADE)


@each_codec
def test_the_interface(name: str, tmp_path: Path) -> None:
    codec = load_codec(MADE[name](tmp_path / name))
    channels = 2 if name == "encodec-48" else 1
    assert (codec.channels, codec.rq_groups, codec.codebook_size, codec.downsample_factor) == (channels, 1, 16, 8)
    assert codec.frame_rate == codec.target_sample_hz / 8
    wave = noise(2, channels, 1000)
    codes = codec.tokenize(wave)
    assert codes.shape == (2, 125, codec.num_quantizers)
    assert codes.dtype == torch.int64
    assert 0 <= int(codes.min()) < int(codes.max()) < 16
    assert codec.frames(torch.tensor([1000, 1, 0, 9])).tolist() == [125, 1, 0, 2]
    again = codec.decode_from_codebook_indices(codes)
    assert again.shape == (2, channels, 1000)
    assert again.isfinite().all()
    assert int(codec.fingerprint(), 16) >= 0
    assert len(codec.fingerprint()) == 16


@each_codec
def test_a_row_of_a_padded_batch_equals_the_row_alone(name: str, tmp_path: Path) -> None:
    codec = load_codec(MADE[name](tmp_path / name))
    batch, lengths = noise(3, codec.channels, 2400), torch.tensor([2400, 1301, 0])
    codes = codec.tokenize(batch, lengths)
    for row, wave, length, count in zip(codes, batch, lengths, codec.frames(lengths), strict=True):
        if count:
            assert torch.equal(row[:count], codec.tokenize(wave[None, :, :length])[0])
        assert (row[count:] == -1).all()


@each_codec
def test_the_fingerprint_follows_the_weights(name: str, tmp_path: Path) -> None:
    codec = load_codec(MADE[name](tmp_path / name))
    first = codec.fingerprint()
    assert load_codec(tmp_path / name).fingerprint() == first
    with torch.no_grad():
        next(codec.parameters()).add_(1e-3)
    assert codec.fingerprint() != first


@each_codec
def test_AM4_codes_may_be_trained_on(name: str, tmp_path: Path) -> None:
    codec = load_codec(MADE[name](tmp_path / name))
    codes = codec.tokenize(noise(1, codec.channels, 800))
    assert not codes.is_inference()
    torch.nn.Embedding(16, 4)(codes).sum().backward()


def test_encodec_equals_transformers_own(tmp_path: Path) -> None:
    folder = encodec_24(tmp_path / "model")
    codec, whole = EncodecWrapper(0.8, folder), transformers.EncodecModel.from_pretrained(folder).eval()
    wave = noise(1, 1, 1600)
    with torch.no_grad():
        expected = whole.encode(wave, bandwidth=0.8).audio_codes
        codes = codec.tokenize(wave)
        assert torch.equal(codes, expected[0].transpose(1, 2))
        again = whole.decode(expected, [None]).audio_values
    assert torch.allclose(codec.decode_from_codebook_indices(codes), again, atol=1e-6)
    _, also, _ = codec(wave)
    assert torch.equal(also, codes)
    assert codec(wave, return_encoded=True)[0].shape == (1, 200, 8)


def test_the_stereo_encodec_hears_pieces_of_a_second_at_one_level(tmp_path: Path) -> None:
    codec = EncodecWrapper(1.6, encodec_48(tmp_path / "model"))
    wave = noise(1, 2, 4000)
    codes = codec.tokenize(wave)
    assert codes.shape == (1, 500, 2)
    assert torch.equal(codes[:, 200:400], codec.tokenize(wave[..., 1600:3200]))
    assert torch.equal(codes, codec.tokenize(0.25 * wave))
    again = codec.decode_from_codebook_indices(codes)
    assert torch.equal(again[..., :1600], codec.decode_from_codebook_indices(codes[:, :200]))
    whole = transformers.EncodecModel.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        first = whole.encode(wave[..., :1600], bandwidth=1.6)
        expected = whole._decode_frame(first.audio_codes[0], torch.tensor([LEVEL]))
    assert torch.equal(first.audio_codes[0].transpose(1, 2), codes[:, :200])
    assert torch.allclose(again[..., :1600], expected, atol=1e-6)


@pytest.mark.parametrize(("kbps", "levels"), [(0.4, 1), (0.8, 2), (1.6, 4)])
def test_every_bandwidth_has_its_quantizers(kbps: float, levels: int, tmp_path: Path) -> None:
    folder = encodec_24(tmp_path / "model")
    assert EncodecWrapper(kbps, folder).num_quantizers == levels
    assert load_codec(f"{folder}@{kbps}").tokenize(noise(1, 1, 80)).shape == (1, 10, levels)


def test_public_checkpoints_are_known_by_name_without_a_network() -> None:
    mono, stereo = EncodecWrapper(bandwidth=6.0), EncodecWrapper(24.0, "facebook/encodec_48khz")
    assert [EncodecWrapper(b).num_quantizers for b in (1.5, 3, 6, 12, 24)] == [2, 4, 8, 16, 32]
    assert [EncodecWrapper(b, "facebook/encodec_48khz").num_quantizers for b in (3, 6, 12, 24)] == [2, 4, 8, 16]
    assert (mono.target_sample_hz, mono.frame_rate, mono.channels) == (24000, 75.0, 1)
    assert (stereo.target_sample_hz, stereo.frame_rate, stereo.channels) == (48000, 150.0, 2)
    codec = load_codec("descript/dac_44khz")
    assert (codec.target_sample_hz, codec.downsample_factor, codec.num_quantizers) == (44100, 512, 9)


def test_a_wrong_bandwidth_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it has 1\.5, 3, 6, 12, 24"):
        EncodecWrapper(7.0)
    with pytest.raises(UserError, match="no number of kbps"):
        load_codec("facebook/encodec_24khz@six")
    with pytest.raises(UserError, match="leave @6 out"):
        load_codec("descript/dac_16khz@6")


def test_dac_takes_fewer_levels(tmp_path: Path) -> None:
    folder = dac(tmp_path / "model")
    wave = noise(1, 1, 400)
    assert torch.equal(DACWrapper(folder, 2).tokenize(wave), DACWrapper(folder).tokenize(wave)[..., :2])
    with pytest.raises(UserError, match="has 3 quantizers"):
        DACWrapper(folder, 4)


def test_only_ours_streams(tmp_path: Path) -> None:
    codec = load_codec(soundstream(tmp_path / "ours"))
    codes = codec.tokenize(noise(1, 1, 800))
    stream = codec.stream_decoder()
    pieces = [stream.push(codes[:, :30]), stream.push(codes[:, 30:]), stream.flush()]
    whole = codec.decode_from_codebook_indices(codes)
    assert torch.allclose(torch.cat(pieces, dim=-1), whole, atol=1e-5)
    assert load_codec(encodec_24(tmp_path / "theirs")).stream_decoder() is None


def test_the_shipped_codec_and_what_is_none(tmp_path: Path) -> None:
    codec = load_codec("speech-16k")
    assert (codec.target_sample_hz, codec.channels) == (16000, 1)
    with pytest.raises(UserError, match="no model 'nothing'"):
        load_codec("nothing")
