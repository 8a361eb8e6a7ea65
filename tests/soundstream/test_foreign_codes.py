"""Codes that a codec did not make, or not like this, never meet it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_sounds import SPECTRAL, build, left_in, recorded

from madrigal.errors import UserError
from madrigal.soundstream import compression
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress
from madrigal.soundstream.container import Writer, examine
from madrigal.soundstream.fingerprint import fingerprint

pytestmark = pytest.mark.usefixtures("one_thread")


def test_another_codec_is_refused_by_name(light: SoundStream, tmp_path: Path) -> None:
    source = recorded(tmp_path / "in.wav", 1000)
    compress(light, source, tmp_path / "a.mgl", codec_name="speech-8k")
    for other in (build(1, **SPECTRAL), build(**SPECTRAL, spectral_kernel_size=5), build()):
        with pytest.raises(UserError, match="another codec 'speech-8k'") as caught:
            decompress(other, tmp_path / "a.mgl", tmp_path / "out.wav")
        assert fingerprint(light).hex() in str(caught.value)
    assert not (tmp_path / "out.wav").exists()


def test_the_fingerprint_is_of_what_codes_and_of_nothing_else(light: SoundStream, tmp_path: Path) -> None:
    light.save_pretrained(tmp_path)
    own = fingerprint(light)
    assert fingerprint(SoundStream.from_pretrained(tmp_path)) == own
    assert fingerprint(build(**SPECTRAL, loss_weights={"mel": 3.0}, rq_ema_decay=0.5)) == own
    # These leave every weight as it is, and change the codes.
    assert fingerprint(build(**SPECTRAL, attn_window_size=4)) != own
    changed = build(**SPECTRAL)
    with torch.no_grad():
        next(iter(changed.quantizer.parameters())).view(-1)[0] += 1e-3
    assert fingerprint(changed) != own


def test_damage_is_found_before_anything_is_written(light: SoundStream, tmp_path: Path) -> None:
    compress(light, recorded(tmp_path / "in.wav", 30 * 8000), tmp_path / "a.mgl")
    whole = (tmp_path / "a.mgl").read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.integers(0, len(whole) * 8, 40):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "b.mgl").write_bytes(damaged)
        with pytest.raises(UserError, match=r"b\.mgl"):
            decompress(light, tmp_path / "b.mgl", tmp_path / "out.wav")
    for size in (0, 3, 30, 100, len(whole) - 1):
        (tmp_path / "b.mgl").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"b\.mgl"):
            decompress(light, tmp_path / "b.mgl", tmp_path / "out.wav")
    assert left_in(tmp_path) == ["a.mgl", "b.mgl", "in.wav"]


@pytest.mark.parametrize(
    ("field", "value"), [("channels", 3), ("channels", 2), ("bits", 7), ("quantizers", 5), ("sample_rate", 1)]
)
def test_a_forged_header_is_refused(light: SoundStream, tmp_path: Path, field: str, value: int) -> None:
    compress(light, recorded(tmp_path / "in.wav", 400), tmp_path / "a.mgl")
    header = replace(examine(tmp_path / "a.mgl").header, **{field: value})  # type: ignore[arg-type]
    with (tmp_path / "b.mgl").open("wb") as file:
        writer = Writer(file, header)
        samples = 10 * 40 * header.sample_rate // 8000
        writer.write(np.zeros((header.streams, header.num_frames(samples), header.quantizers), np.int64))
        writer.finish(samples)
    with pytest.raises(UserError, match="does not fit this codec"):
        decompress(light, tmp_path / "b.mgl", tmp_path / "out.wav")


def test_codes_beyond_the_codebook_are_refused(tmp_path: Path) -> None:
    codec = build(codebook_size=33, **SPECTRAL)
    compress(codec, recorded(tmp_path / "in.wav", 400), tmp_path / "a.mgl")
    with (tmp_path / "b.mgl").open("wb") as file:
        writer = Writer(file, examine(tmp_path / "a.mgl").header)
        writer.write(np.full((1, 10, 4), 40))
        writer.finish(400)
    with pytest.raises(UserError, match="codes that this codec does not have"):
        decompress(codec, tmp_path / "b.mgl", tmp_path / "out.wav")
    assert not (tmp_path / "out.wav").exists()


def test_a_codec_that_gives_nonsense_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = build()
    compress(codec, recorded(tmp_path / "in.wav", 400), tmp_path / "a.mgl")
    broken = build()
    with torch.no_grad():
        for parameter in broken.decoder.parameters():
            parameter.fill_(float("nan"))
    mark = examine(tmp_path / "a.mgl").header.fingerprint
    monkeypatch.setattr(compression, "fingerprint", lambda _: mark)
    with pytest.raises(UserError, match="not finite"):
        decompress(broken, tmp_path / "a.mgl", tmp_path / "out.wav")
    assert not (tmp_path / "out.wav").exists()
