"""compress and decompress: the same length, rate and channels come back, at the rate that was asked for."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from recorded_sounds import SPECTRAL, build, codes_in, recorded, sound

from madrigal.errors import UserError
from madrigal.soundstream import wave_streams
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress
from madrigal.soundstream.container import examine

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_result_is_what_the_codec_gives_for_the_whole(codec: SoundStream, tmp_path: Path) -> None:
    samples = 2 * wave_streams.PIECE + 12345
    source = recorded(tmp_path / "in.wav", samples)
    done = compress(codec, source, tmp_path / "a.mgl", num_quantizers=3)
    assert done.seconds == samples / 8000
    assert done.bytes == (tmp_path / "a.mgl").stat().st_size
    wave = torch.from_numpy(soundfile.read(source, dtype="float32")[0])
    with torch.no_grad():
        codes = codec.encode(wave[None], num_quantizers=3)
        expected = codec.decode_from_codebook_indices(torch.from_numpy(codes_in(tmp_path / "a.mgl")))
    # A frame that lies between two codes may fall to either side; a stream that lost its place would fall nowhere near.
    assert np.mean(codes_in(tmp_path / "a.mgl") == codes.numpy()) > 0.999
    decompress(codec, tmp_path / "a.mgl", tmp_path / "out.wav")
    back, rate = soundfile.read(tmp_path / "out.wav", dtype="float32")
    assert (len(back), rate) == (samples, 8000)
    np.testing.assert_allclose(back, expected[0, 0, :samples].clamp(-1, 1), atol=2e-4)


@pytest.mark.parametrize("rate", [4000, 8000, 11025, 44100, 96000])
@pytest.mark.parametrize("samples", [1, 2, 39, 40, 41, 20011])
def test_length_and_rate_come_back_exactly(light: SoundStream, tmp_path: Path, rate: int, samples: int) -> None:
    source = recorded(tmp_path / "in.wav", samples, 1, rate)
    compress(light, source, tmp_path / "a.mgl")
    result = decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav")
    assert (result.samples, result.sample_rate, result.channels) == (samples, rate, 1)
    info = soundfile.info(tmp_path / "out.wav")
    assert (info.frames, info.samplerate, info.channels) == (samples, rate, 1)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("input_channels", [1, 2])
@pytest.mark.parametrize("form", [{}, SPECTRAL], ids=["waveform", "spectral"])
def test_channels_come_back(tmp_path: Path, channels: int, input_channels: int, form: dict[str, str]) -> None:
    codec = build(input_channels=input_channels, **form)
    source = recorded(tmp_path / "in.flac", 5001, channels, 16000)
    compress(codec, source, tmp_path / "a.mgl")
    header = examine(tmp_path / "a.mgl").header
    assert (header.channels, header.streams) == (channels, 2 if (channels, input_channels) == (2, 1) else 1)
    decompress(codec, tmp_path / "a.mgl", tmp_path / "out.FLAC")
    info = soundfile.info(tmp_path / "out.FLAC")
    assert (info.format, info.frames, info.samplerate, info.channels) == ("FLAC", 5001, 16000, channels)


def test_a_mono_codec_codes_each_channel_of_stereo_for_itself(light: SoundStream, tmp_path: Path) -> None:
    both = sound(20000, 2)
    soundfile.write(tmp_path / "both.wav", both, 8000)
    compress(light, tmp_path / "both.wav", tmp_path / "both.mgl")
    for channel in range(2):
        soundfile.write(tmp_path / "one.wav", both[:, channel], 8000)
        compress(light, tmp_path / "one.wav", tmp_path / "one.mgl", overwrite=True)
        same = codes_in(tmp_path / "both.mgl")[channel] == codes_in(tmp_path / "one.mgl")[0]
        assert same.mean() > 0.999


def test_resampling_in_pieces_keeps_the_time(tmp_path: Path) -> None:
    rate, samples = 44100, 5 * wave_streams.PIECE
    path = recorded(tmp_path / "in.wav", samples, 2, rate, "FLOAT")
    reader = wave_streams.WaveReader(path)
    pieces = list(reader.pieces(8000))
    assert reader.samples == samples
    assert max(map(len, pieces)) <= wave_streams.PIECE + 4096
    low = np.concatenate(pieces)
    assert low.shape == (-(-samples * 8000 // rate), 2)
    np.testing.assert_allclose(low[100:-100], sound(len(low), 2, 8000)[100:-100], atol=1e-3)
    with (tmp_path / "out.wav").open("w+b") as file:
        writer = wave_streams.WaveWriter(
            file, tmp_path / "out.wav", from_rate=8000, sample_rate=rate, channels=2, samples=samples
        )
        with closing(writer):
            for piece in pieces:
                writer.write(piece)
            writer.finish()
    back = soundfile.read(tmp_path / "out.wav")[0]
    assert back.shape == (samples, 2)
    np.testing.assert_allclose(back[1000:-1000], sound(samples, 2, rate)[1000:-1000], atol=1e-3)


@pytest.mark.parametrize(("kbps", "channels", "levels"), [(1, 1, 1), (3, 1, 3), (4, 1, 4), (2, 2, 1), (8, 2, 4)])
def test_the_rate_is_the_one_asked_for(
    light: SoundStream, tmp_path: Path, kbps: float, channels: int, levels: int
) -> None:
    source = recorded(tmp_path / "in.wav", 60 * 8000, channels)
    done = compress(light, source, tmp_path / "a.mgl", kbps=kbps)
    assert examine(tmp_path / "a.mgl").header.quantizers == levels
    assert kbps <= done.kbps < kbps * 1.02
    assert done.kbps == pytest.approx(done.bytes * 8 / 60 / 1000)


def test_an_impossible_rate_lists_the_possible_ones(light: SoundStream, tmp_path: Path) -> None:
    mono, stereo = recorded(tmp_path / "1.wav", 100), recorded(tmp_path / "2.wav", 100, 2)
    for kbps in (0, -1, 1.5, 5, 1000, float("nan"), float("inf")):
        with pytest.raises(UserError, match="the possible rates are 1, 2, 3, 4 kbps"):
            compress(light, mono, tmp_path / "a.mgl", kbps=kbps)
    with pytest.raises(UserError, match=r"with 2 channels, cannot code at 3 kbps; .* 2, 4, 6, 8 kbps"):
        compress(light, stereo, tmp_path / "a.mgl", kbps=3)
    for levels in (0, 5, -1):
        with pytest.raises(UserError, match="give 1 to 4"):
            compress(light, mono, tmp_path / "a.mgl", num_quantizers=levels)
    with pytest.raises(UserError, match="give one of them"):
        compress(light, mono, tmp_path / "a.mgl", kbps=1, num_quantizers=1)
    assert not (tmp_path / "a.mgl").exists()


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"codebook_size": 33}, 6),
        ({"codebook_size": 64, "use_lookup_free_quantizer": True}, 6),
        ({"codebook_size": None, "use_finite_scalar_quantizer": True, "finite_scalar_quantizer_levels": (5, 5, 4)}, 7),
    ],
    ids=["vq", "lfq", "fsq"],
)
def test_groups_and_every_kind_of_quantizer(tmp_path: Path, options: dict[str, Any], bits: int) -> None:
    codec = build(rq_groups=2, **SPECTRAL, **options)
    source = recorded(tmp_path / "in.wav", 3000)
    compress(codec, source, tmp_path / "a.mgl", num_quantizers=2)
    header = examine(tmp_path / "a.mgl").header
    assert (header.quantizers, header.bits) == (4, bits)
    decompress(codec, tmp_path / "a.mgl", tmp_path / "out.wav")
    assert soundfile.info(tmp_path / "out.wav").frames == 3000


def test_flac_from_a_pipe_does_not_know_its_length(light: SoundStream, tmp_path: Path) -> None:
    source = recorded(tmp_path / "in.flac", 100000)
    data = bytearray(source.read_bytes())
    data[21] &= 0xF0  # STREAMINFO: the lower half of this byte and the next four are the number of samples
    data[22:26] = bytes(4)
    source.write_bytes(data)
    totals = []
    done = compress(light, source, tmp_path / "a.mgl", progress=lambda _, total: totals.append(total))
    assert done.seconds == 100000 / 8000
    assert set(totals) == {0}


def test_lossy_sources_and_silence(light: SoundStream, tmp_path: Path) -> None:
    for name in ("a.ogg", "b.mp3"):
        soundfile.write(tmp_path / name, sound(100000), 8000)
        compress(light, tmp_path / name, tmp_path / "a.mgl", overwrite=True)
        decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav", overwrite=True)
        assert soundfile.info(tmp_path / "out.wav").frames == len(soundfile.read(tmp_path / name)[0])
    soundfile.write(tmp_path / "silence.wav", np.zeros(9000), 8000)
    compress(light, tmp_path / "silence.wav", tmp_path / "a.mgl", overwrite=True)
    assert decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav", overwrite=True).samples == 9000


def test_progress_goes_from_start_to_end(light: SoundStream, tmp_path: Path) -> None:
    source = recorded(tmp_path / "in.wav", 500000, 1, 22050)
    both: dict[str, list[tuple[int, int]]] = {"compress": [], "decompress": []}
    compress(light, source, tmp_path / "a.mgl", progress=lambda *call: both["compress"].append(call))
    decompress(light, tmp_path / "a.mgl", tmp_path / "b.wav", progress=lambda *call: both["decompress"].append(call))
    for calls in both.values():
        assert calls == sorted(calls)
        assert len(calls) > 2
        assert calls[-1] == (500000, 500000)


def test_a_result_too_long_for_wav_is_rf64(light: SoundStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compress(light, recorded(tmp_path / "in.wav", 4000), tmp_path / "a.mgl")
    monkeypatch.setattr(wave_streams, "_WAV_LIMIT", 7999)
    decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav")
    info = soundfile.info(tmp_path / "out.wav")
    assert (info.format, info.frames) == ("RF64", 4000)


LONG = """
import sys, tracemalloc
from pathlib import Path
import torch
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

torch.set_num_threads(1)
torch.manual_seed(0)
codec = SoundStream(discriminators=False, frontend="stft", head="istft", spectral_dim=16, spectral_depth=1,
                    codebook_dim=16, codebook_size=64, use_local_attn=False)
folder = Path(sys.argv[1])
compress(codec, folder / "short.wav", folder / "short.mgl")
decompress(codec, folder / "short.mgl", folder / "short-out.wav")
before = peak()
tracemalloc.start()
compress(codec, folder / "long.wav", folder / "long.mgl")
decompress(codec, folder / "long.mgl", folder / "long-out.wav")
print(before, peak(), tracemalloc.get_traced_memory()[1] >> 20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    # A process of its own: the peak is of the whole life of a process.
    for name, minutes in (("short", 0.5), ("long", 10)):
        recorded(tmp_path / f"{name}.wav", int(minutes * 60 * 16000), 1, 16000)
    run = subprocess.run([sys.executable, "-c", LONG, str(tmp_path)], capture_output=True, text=True, check=True)
    before, after, traced = map(int, run.stdout.split())
    # The ten minutes alone are 37 MB of floats, and the widest layer's output is many times that.
    assert after - before < 30, run.stdout
    assert traced < 15, run.stdout
    assert after < 1000
    assert soundfile.info(tmp_path / "long-out.wav").frames == 10 * 60 * 16000
