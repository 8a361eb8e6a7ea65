"""The codec in pieces equals the codec on the whole, in bounded memory."""

from typing import Any

import pytest
import torch
from tiny_codecs import DOMAINS, noise, tiny_codec
from torch import Tensor

from madrigal.layers.convolutions import StreamCache
from madrigal.soundstream.streaming import StreamingDecoder, StreamingEncoder

OPTIONS: dict[str, dict[str, Any]] = {
    **DOMAINS,
    "every layer": {"squeeze_excite": True, "use_gate_loop_layers": True, "attn_depth": 2},
    "replicated, xpos": {"pad_mode": "replicate", "attn_xpos_scale_base": 8},
    "position bias, groups": {"attn_dynamic_pos_bias": True, "rq_groups": 2},
    "wide window": {**DOMAINS["stft"], "spectral_n_fft": 32},
}
FRAMES = 60


@pytest.mark.parametrize("chunk", [1, 7, 50])
@pytest.mark.parametrize("name", OPTIONS)
def test_chunks_of_frames_equal_the_whole(name: str, chunk: int) -> None:
    codec = tiny_codec(**OPTIONS[name])
    wave = noise(2, 1, FRAMES * 8)
    whole = codec.encode(wave)
    encoder, decoder = StreamingEncoder(codec), StreamingDecoder(codec)
    codes = torch.cat([*map(encoder.push, wave.split(chunk * 8, dim=-1)), encoder.flush()], dim=1)
    assert torch.equal(codes, whole)
    made = torch.cat([*map(decoder.push, whole.split(chunk, dim=1)), decoder.flush()], dim=-1)
    torch.testing.assert_close(made, codec.decode_from_codebook_indices(whole), atol=1e-4, rtol=0)


@pytest.mark.parametrize("domain", DOMAINS)
def test_pieces_of_any_number_of_samples(domain: str) -> None:
    codec = tiny_codec(**DOMAINS[domain])
    wave = noise(1, 1, 200)
    encoder, decoder = StreamingEncoder(codec), StreamingDecoder(codec)
    pieces = [encoder.push(piece) for piece in wave.split([3, 1, 0, 61, 16, 119], dim=-1)]
    codes = torch.cat([*pieces, encoder.flush()], dim=1)
    assert torch.equal(codes, codec.encode(wave))
    made = [decoder.push(piece) for piece in [codes[:, :0], *codes.split([1, 20, 4], dim=1)]]
    torch.testing.assert_close(
        torch.cat([*made, decoder.flush()], dim=-1), codec(wave, return_recons_only=True), atol=1e-4, rtol=0
    )


def test_an_unfinished_frame_is_filled_with_silence() -> None:
    codec = tiny_codec()
    wave = noise(1, 1, 83)
    encoder = StreamingEncoder(codec)
    codes = torch.cat([encoder.push(wave), encoder.flush()], dim=1)
    assert torch.equal(codes, codec.encode(wave))


def test_fewer_levels() -> None:
    codec = tiny_codec(rq_groups=2)
    encoder = StreamingEncoder(codec, num_quantizers=3)
    codes = encoder.push(noise(1, 1, 80))
    assert torch.equal(codes, codec.encode(noise(1, 1, 80), num_quantizers=3))
    assert encoder.flush().shape == (1, 0, 6)
    assert StreamingDecoder(codec).push(codes).shape == (1, 1, 80)


def test_denoising_stream() -> None:
    codec = tiny_codec()
    with torch.no_grad():
        for film in (codec.encoder_film, codec.decoder_film):
            film.shift[1] += 0.5
    wave = noise(1, 1, 80)
    codes = StreamingEncoder(codec, is_denoising=True).push(wave)
    assert torch.equal(codes, codec.encode(wave, is_denoising=True))
    made = StreamingDecoder(codec, is_denoising=True).push(codes)
    torch.testing.assert_close(made, codec(wave, is_denoising=True, return_recons_only=True), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_stream_can_be_used_again_after_its_end(domain: str) -> None:
    codec = tiny_codec(**DOMAINS[domain])
    encoder, decoder = StreamingEncoder(codec), StreamingDecoder(codec)
    assert encoder.flush().shape == (1, 0, 4)
    assert decoder.flush().shape == (1, 1, 0)
    runs = []
    for _ in range(2):
        codes = torch.cat([encoder.push(noise(1, 1, 84)), encoder.flush()], dim=1)
        runs.append(torch.cat([decoder.push(codes), decoder.flush()], dim=-1))
    assert torch.equal(*runs)
    assert runs[0].shape == (1, 1, 88)


@pytest.mark.parametrize("name", OPTIONS)
def test_memory_of_a_stream_does_not_grow(name: str) -> None:
    codec = tiny_codec(**OPTIONS[name])
    encoder, decoder = StreamingEncoder(codec), StreamingDecoder(codec)
    sizes = []
    for _ in range(6):
        decoder.push(encoder.push(noise(1, 1, 160)))
        sizes.append(_bytes(encoder._cache) + _bytes(decoder._cache))
    assert len(set(sizes)) == 1


def _bytes(kept: StreamCache | tuple[Any, ...] | Any) -> int:
    if isinstance(kept, Tensor):
        return kept.untyped_storage().nbytes()
    if isinstance(kept, dict):
        kept = tuple(kept.values())
    return sum(map(_bytes, kept)) if isinstance(kept, tuple) else 0
