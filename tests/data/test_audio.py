from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import madrigal.data
from madrigal.data import audio
from madrigal.data.audio import DecodeError, mix_channels, probe, read, read_rates, resample, resampled_length, write
from madrigal.errors import UserError


def decibels(error: torch.Tensor, signal: torch.Tensor) -> float:
    return float(10 * torch.log10(error.square().mean() / signal.square().mean() + 1e-20))


def test_probe_reads_the_header(record):
    info = probe(record("a.flac", seconds=0.5, rate=22050, channels=2))
    assert (info.frames, info.sample_rate, info.channels) == (11025, 22050, 2)
    assert info.duration == 0.5


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3", "opus"])
@pytest.mark.parametrize("start", [0, 1, 1000, 20011, 40000])
def test_a_crop_equals_that_part_of_the_whole_file(record, ending, start):
    path = record(f"a.{ending}", seconds=1.0, rate=48000)
    whole = read(path)
    crop = read(path, start=start, frames=4000)
    assert crop.shape == (1, 4000)
    assert crop.dtype == torch.float32
    torch.testing.assert_close(crop, whole[:, start : start + 4000], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("native", "rate"), [(44100, 16000), (16000, 24000), (8000, 48000), (48000, 8000), (22050, 16001)]
)
def test_the_crop_of_the_resampled_is_the_resampled_crop(record, native, rate):
    path = record("a.wav", seconds=1.5, rate=native, subtype="FLOAT")
    whole = resample(read(path), native, rate)
    assert whole.shape[-1] == resampled_length(round(1.5 * native), native, rate)
    for start, frames in [(0, 500), (rate // 3, rate // 4), (rate + 1, None)]:
        crop = read(path, start=start, frames=frames, sample_rate=rate)
        expected = whole[:, start : None if frames is None else start + frames]
        assert crop.shape == expected.shape
        assert decibels(crop - expected, expected) < -90


def test_resampled_lengths_are_exact():
    for frames in (1, 2, 3, 160, 441, 999, 1001, 4410):
        for native, rate in [(44100, 16000), (48000, 24000), (16000, 24000), (8000, 44100), (24000, 48000)]:
            wave = torch.ones(2, frames)
            assert resample(wave, native, rate).shape == (2, resampled_length(frames, native, rate))
    assert resample(torch.ones(1, 0), 8000, 16000).shape == (1, 0)


def test_several_rates_cover_the_same_span_and_decode_once(record, monkeypatch):
    path = record("a.wav", seconds=2.0, rate=44100)
    decoded = []
    decode = audio._decode
    monkeypatch.setattr(audio, "_decode", lambda *a: decoded.append(a[-2:]) or decode(*a))
    low, high = read_rates(path, (16000, 24000), start=8000, frames=8000)
    assert len(decoded) == 1
    assert (low.shape[-1], high.shape[-1]) == (8000, 12000)
    torch.testing.assert_close(low, read(path, start=8000, frames=8000, sample_rate=16000), atol=1e-5, rtol=0)
    torch.testing.assert_close(high, read(path, start=12000, frames=12000, sample_rate=24000), atol=1e-5, rtol=0)


def test_AM34_only_the_crop_is_decoded(record, monkeypatch):
    path = record("long.flac", seconds=20.0, rate=48000)
    frames_read = []
    original = soundfile.SoundFile.read
    monkeypatch.setattr(
        soundfile.SoundFile, "read", lambda self, n, **options: frames_read.append(n) or original(self, n, **options)
    )
    assert read(path, start=16000 * 10, frames=16000, sample_rate=16000).shape == (1, 16000)
    assert sum(frames_read) < 48000 * 1.05


def test_a_crop_past_the_end_is_shorter(record):
    path = record("a.wav", seconds=0.5)
    assert read(path, start=7000, frames=4000).shape == (1, 1000)
    assert read(path, start=9000, frames=10).shape == (1, 0)


def test_mono_and_stereo(record):
    mono, stereo = record("m.wav"), record("s.wav", channels=2)
    both = read(stereo)
    assert both.shape[0] == 2
    torch.testing.assert_close(read(stereo, channels=1), both.mean(0, keepdim=True))
    doubled = read(mono, channels=2)
    assert torch.equal(doubled[0], doubled[1])
    assert torch.equal(read(stereo, channels=2), both)
    with pytest.raises(UserError, match="cannot be mixed to 2"):
        mix_channels(torch.ones(6, 10), 2)
    with pytest.raises(DecodeError, match="8 channels"):
        read(record("eight.wav", channels=8), channels=2)


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3", "opus"])
def test_what_is_written_can_be_read(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    time = torch.arange(24000) / 24000
    wave = torch.stack([torch.sin(440 * 6.2832 * time), torch.sin(660 * 6.2832 * time)]) * 0.5
    write(path, wave, 24000)
    back = read(path)
    assert back.shape == wave.shape
    middle = slice(4000, 20000)
    assert decibels((back - wave)[:, middle], wave[:, middle]) < -20


def test_write_takes_subtypes_and_one_dimension_and_clips(tmp_path):
    path = tmp_path / "a.wav"
    write(path, torch.tensor([0.0, 3.0, -3.0]), 16000, "PCM_24")
    assert probe(path).subtype == "PCM_24"
    assert read(path).abs().max() <= 1


@pytest.mark.parametrize(
    ("name", "wave"),
    [
        ("a.wav", torch.tensor([[float("nan")]])),
        ("a.wav", torch.zeros(1, 0)),
        ("a.wav", torch.zeros(1, 1, 5)),
        ("a.what", torch.zeros(1, 5)),
        ("missing/a.wav", torch.zeros(1, 5)),
    ],
)
def test_what_cannot_be_written_gets_one_sentence(tmp_path, name, wave):
    with pytest.raises(UserError, match=r"a\.wh?a[vt]* "):
        write(tmp_path / name, wave, 16000)


def damaged(kind: str, record, tmp_path: Path) -> Path:
    path = tmp_path / "bad.wav"
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is no sound\n" * 100)
    elif kind == "nan":
        soundfile.write(path, np.full(8000, np.nan, np.float32), 16000, subtype="FLOAT")
    elif kind == "truncated":
        whole = record("whole.flac", seconds=3.0).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "folder":
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["empty", "text", "nan", "truncated", "folder", "missing"])
def test_damaged_data_is_a_decode_error_with_the_path(kind, record, tmp_path):
    path = damaged(kind, record, tmp_path)
    with pytest.raises(DecodeError, match=r"bad\.wav cannot be used: ") as caught:
        read(path)
    assert caught.value.path == str(path)
    assert caught.value.reason
    assert "\n" not in str(caught.value)


def test_AM36_the_room_needs_neither_torchaudio_nor_torchvision():
    for file in Path(madrigal.data.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith(("torchaudio", "torchvision", "torchcodec")) for name in names)
