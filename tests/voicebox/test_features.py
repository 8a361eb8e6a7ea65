"""Features there and back: lengths, statistics, batches, and the older names."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from voicebox_sounds import RATE, TINY, tiny_vocoder, vowel

from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.tokenizers.mel_config import MelConfig
from madrigal.tokenizers.mel_features import Features, MelFeatures
from madrigal.voicebox.codec_features import CodecFeatures
from madrigal.voicebox.features import MelVoco, load_features

MEL = MelConfig(**{name: TINY[name] for name in MelConfig.model_fields})
CODEC = {"strides": (4, 8), "channels": 2, "channel_mults": (2, 4), "codebook_dim": 8, "codebook_size": 16}
SMALL = {**CODEC, "rq_num_quantizers": 2, "use_local_attn": False}


def codec_features() -> CodecFeatures:
    torch.manual_seed(0)
    codec = SoundStream(**SMALL, discriminators=False)
    codec.quantizer.initialize(torch.randn(64, 8))
    return CodecFeatures(codec)


@pytest.fixture(params=["mel", "vocoder", "codec"])
def features(request: pytest.FixtureRequest) -> Features:
    if request.param == "codec":
        return codec_features()
    return MelFeatures(MEL) if request.param == "mel" else tiny_vocoder().eval().features()


@pytest.mark.parametrize("samples", [20, 640, 1000, 4095])
def test_VB3_VB8_frames_are_whole_hops_and_decode_to_as_many_samples(features: Features, samples: int) -> None:
    wave = vowel()[:samples].expand(2, -1)
    encoded = features.encode(wave)
    frames = samples // features.hop
    assert encoded.shape == (2, frames, features.dim)
    assert features.frames(samples) == frames
    assert features.frames(torch.tensor([samples, 0])).tolist() == [frames, 0]
    assert features.decode(encoded).shape == (2, frames * features.hop)


def test_fitted_features_have_zero_mean_and_unit_variance(features: Features) -> None:
    waves = [vowel(seed=seed) for seed in range(4)]
    before = features.fingerprint()
    features.fit(waves)
    encoded = torch.cat([features.encode(wave[None])[0] for wave in waves])
    torch.testing.assert_close(encoded.mean(0), torch.zeros(features.dim), rtol=0, atol=1e-3)
    moving = encoded.std(0) > 0.5  # a band that hardly moves is not blown up
    torch.testing.assert_close(encoded.std(0)[moving], torch.ones(int(moving.sum())), rtol=1e-2, atol=1e-2)
    assert features.fingerprint() != before
    torch.testing.assert_close(features.denormalise(features.encode(waves[0][None])), features.raw(waves[0][None]))


def test_a_row_is_the_same_in_any_batch(features: Features) -> None:
    features.fit([vowel()])
    long, short = vowel(seed=1), vowel(0.3, seed=2) + 0.05
    batch = torch.randn(2, len(long))
    batch[0], batch[1, : len(short)] = long, short
    lengths = torch.tensor([len(long), len(short)])
    encoded = features.encode(batch, lengths)
    alone = features.encode(short[None])
    frames = alone.shape[1]
    torch.testing.assert_close(encoded[1, :frames], alone[0], rtol=1e-4, atol=1e-4)
    assert not encoded[1, frames:].any()
    decoded = features.decode(encoded, features.frames(lengths))
    torch.testing.assert_close(decoded[1, : frames * features.hop], features.decode(alone)[0], rtol=1e-3, atol=1e-4)
    assert not decoded[1, frames * features.hop :].any()


def test_frame_i_stands_for_its_own_samples() -> None:
    features = MelFeatures(MEL)
    wave = torch.zeros(1, 10 * features.hop)
    wave[0, 4 * features.hop + 10 : 5 * features.hop - 10] = torch.randn(features.hop - 20)
    assert int(features.encode(wave).mean(-1).argmax()) == 4


def test_griffin_lim_gives_back_the_log_mels_and_always_the_same_sound() -> None:
    features = MelFeatures(MEL)
    encoded = features.encode(vowel()[None])
    heard = features.decode(encoded)
    assert torch.equal(heard, features.decode(encoded))
    silence = features.encode(torch.zeros(1, heard.shape[1]))
    error = (features.encode(heard) - encoded).abs().mean()
    assert error < 0.15 * (silence - encoded).abs().mean()


def test_chunks_joined_are_the_whole(features: Features) -> None:
    encoded = features.encode(vowel(3.0)[None])
    pieces = list(features.decode_in_chunks(encoded, chunk=100))
    torch.testing.assert_close(torch.cat(pieces, dim=1), features.decode(encoded), rtol=1e-3, atol=1e-5)


def test_a_saved_vocoder_is_the_features_that_it_was_trained_with(tmp_path: Path) -> None:
    vocoder = tiny_vocoder()
    vocoder.statistics.fit([vowel()])
    vocoder.save_pretrained(tmp_path / "vocoder")
    for found in (load_features(tmp_path / "vocoder"), MelVoco(vocoder=tmp_path / "vocoder")):
        assert bool(found.fitted)
        assert found.fingerprint() == vocoder.features().fingerprint()
        encoded = found.encode(vowel(seed=3)[None])
        assert torch.equal(found.decode(encoded), vocoder(vocoder.statistics.raw(vowel(seed=3)[None])))


def test_a_saved_codec_gives_latents(tmp_path: Path) -> None:
    made = codec_features()
    made.codec.save_pretrained(tmp_path / "codec")
    found = load_features(tmp_path / "codec")
    assert isinstance(found, CodecFeatures)
    assert torch.equal(found.encode(vowel()[None]), made.encode(vowel()[None]))
    codes = found.decode_to_codes(found.encode(vowel()[None]))
    assert torch.equal(codes, found.codec.tokenize(vowel()[None, : codes.shape[1] * found.hop]))
    direct = CodecFeatures(found.codec, quantize=False)
    assert not torch.equal(direct.decode(direct.encode(vowel()[None])), found.decode(found.encode(vowel()[None])))


def test_VB8_the_older_name_of_mels_has_its_numbers() -> None:
    features = MelVoco(n_mels=24, sampling_rate=RATE, n_fft=256, hop_length=64)
    assert (features.latent_dim, features.downsample_factor, features.sampling_rate) == (24, 64, RATE)
    assert features.config == MEL


def test_what_cannot_be_is_refused() -> None:
    features = MelFeatures(MEL)
    with pytest.raises(UserError, match="one channel"):
        features.encode(torch.zeros(2, 2, 640))
    with pytest.raises(UserError, match=r"\[batch, frames, 24\]"):
        features.decode(torch.zeros(1, 3, 25))
    with pytest.raises(UserError, match="longer ones"):
        features.fit([torch.zeros(10)])
    with pytest.raises(UserError, match="mono SoundStream or EnCodec"):
        CodecFeatures(SoundStream(**SMALL, input_channels=2, discriminators=False))


def test_EnCodecs_latents_go_through_its_own_codes() -> None:
    transformers = pytest.importorskip("transformers")
    from madrigal.tokenizers.encodec import EncodecWrapper

    torch.manual_seed(0)
    wrapper = EncodecWrapper(bandwidth=1.5)
    config = transformers.EncodecConfig(hidden_size=8, num_filters=2, codebook_dim=8, codebook_size=1024)
    wrapper.model = transformers.EncodecModel(config).eval()
    wrapper._facts = config.to_dict()
    features = CodecFeatures(wrapper)
    wave = vowel()[None, : 10 * features.hop + 5]
    encoded: Tensor = features.encode(wave)
    assert encoded.shape == (1, 10, 8)
    assert torch.equal(features.decode_to_codes(encoded), wrapper.tokenize(wave[:, : 10 * features.hop]))
    again = wrapper.decode_from_codebook_indices(features.decode_to_codes(encoded))[:, 0]
    torch.testing.assert_close(features.decode(encoded), again)
