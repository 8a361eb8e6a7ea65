"""compress and decompress: the same length, rate and channels come back, and nothing half-written is left behind."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from madrigal.errors import UserError
from madrigal.soundstream import compression, wave_streams
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress
from madrigal.soundstream.container import Reader, Writer, examine
from madrigal.soundstream.fingerprint import fingerprint

TINY: dict[str, Any] = {
    "target_sample_hz": 8000,
    "strides": (2, 4, 5),
    "channels": 4,
    "channel_mults": (1, 2, 2),
    "codebook_dim": 8,
    "codebook_size": 32,
    "rq_num_quantizers": 4,
    "attn_heads": 2,
    "attn_dim_head": 4,
    "attn_window_size": 8,
    "spectral_dim": 8,
    "spectral_depth": 1,
}
SPECTRAL = {"frontend": "stft", "head": "istft"}


def build(seed: int = 0, **options: Any) -> SoundStream:
    torch.manual_seed(seed)
    return SoundStream(discriminators=False, **{**TINY, **options})


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Layers this small only lose by sharing their work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=[{}, SPECTRAL], ids=["waveform", "spectral"])
def codec(request: pytest.FixtureRequest) -> SoundStream:
    return build(**request.param)


@pytest.fixture(scope="module")
def light() -> SoundStream:
    return build(**SPECTRAL)


def sound(samples: int, channels: int = 1, rate: int = 8000) -> np.ndarray:
    """Tones of its own for each channel, [samples, channels]."""
    time = np.arange(samples)[:, None] / rate
    return 0.4 * np.sin(2 * np.pi * (300 + 170 * np.arange(channels)) * time * (1 + 0.1 * time))


def recorded(path: Path, samples: int, channels: int = 1, rate: int = 8000, subtype: str = "PCM_16") -> Path:
    soundfile.write(path, sound(samples, channels, rate), rate, subtype=subtype)
    return path


def codes_in(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return np.concatenate(list(Reader(file, path).blocks()), axis=1)


@contextmanager
def disk_with_room_for(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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


def bad_sources(folder: Path) -> dict[str, Path]:
    files = {name: folder / f"{name}.wav" for name in ("missing", "empty", "text", "zero", "nan", "slow", "eight")}
    files["empty"].touch()
    files["text"].write_text("This is no sound.\n" * 100)
    soundfile.write(files["zero"], np.zeros((0, 1)), 8000)
    wave = sound(200000)
    wave[150000] = np.nan
    soundfile.write(files["nan"], wave, 8000, subtype="FLOAT")
    soundfile.write(files["slow"], sound(10), 1)
    soundfile.write(files["eight"], sound(1000, 8), 8000)
    soundfile.write(folder / "whole.flac", np.random.default_rng(0).uniform(-1, 1, 200000), 8000)
    data = (folder / "whole.flac").read_bytes()
    files["truncated"] = folder / "truncated.flac"
    files["truncated"].write_bytes(data[: len(data) // 2])
    files["damaged"] = folder / "damaged.flac"
    files["damaged"].write_bytes(data[:100000] + bytes(5000) + data[105000:])
    files["folder"] = folder / "folder"
    files["folder"].mkdir()
    return files


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "there is no such file"),
        ("empty", "it is empty"),
        ("text", "cannot be used"),
        ("zero", "it holds no samples"),
        ("nan", "not finite numbers after"),
        ("slow", "sample rate of 1 Hz is outside"),
        ("eight", "8 channels, and only mono and stereo"),
        ("truncated", "cannot be used"),
        ("damaged", "cannot be used"),
        ("folder", "cannot be used"),
    ],
)
def test_a_bad_source_ends_in_one_sentence(light: SoundStream, tmp_path: Path, name: str, reason: str) -> None:
    source = bad_sources(tmp_path)[name]
    before = left_in(tmp_path)
    with pytest.raises(UserError, match=reason) as caught:
        compress(light, source, tmp_path / "a.mgl")
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert left_in(tmp_path) == before


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


def test_nothing_is_overwritten_by_accident(light: SoundStream, tmp_path: Path) -> None:
    source, other = recorded(tmp_path / "in.wav", 1000), tmp_path / "a.mgl"
    original = source.read_bytes()
    (tmp_path / "link.mgl").symlink_to(source)
    (tmp_path / "hard.mgl").hardlink_to(source)
    for own in (source, tmp_path / "link.mgl", tmp_path / "hard.mgl", tmp_path / "." / "in.wav"):
        with pytest.raises(UserError, match="is the file to be read"):
            compress(light, source, own, overwrite=True)
    other.write_text("dear to someone")
    with pytest.raises(UserError, match="exists already"):
        compress(light, source, other)
    assert other.read_text() == "dear to someone"
    compress(light, source, other, overwrite=True)
    with pytest.raises(UserError, match="exists already"):
        decompress(light, other, source)
    (tmp_path / "to-out.wav").symlink_to(tmp_path / "out.wav")
    (tmp_path / "out.wav").touch()
    decompress(light, other, tmp_path / "to-out.wav", overwrite=True)
    assert (tmp_path / "to-out.wav").is_symlink()
    assert soundfile.info(tmp_path / "out.wav").frames == 1000
    assert source.read_bytes() == original


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("nowhere/a", "there is no folder"),
        ("", "is a folder"),
        ("in.wav/a", "there is no folder"),
        ("x" * 300, "name too long"),
    ],
)
def test_a_bad_target_ends_in_one_sentence(light: SoundStream, tmp_path: Path, target: str, reason: str) -> None:
    source = recorded(tmp_path / "in.wav", 1000)
    compress(light, source, tmp_path / "good.mgl")
    with pytest.raises(UserError, match=f"(?i){reason}"):
        compress(light, source, tmp_path / (target + ".mgl" if target else ""))
    ending = ".wav" if target else ""
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(UserError, match=f"(?i){reason}"):
        decompress(light, tmp_path / "good.mgl", tmp_path / ((target or "folder.wav") + ending))
    with pytest.raises(UserError, match=r"ends in \.wav or \.flac"):
        decompress(light, tmp_path / "good.mgl", tmp_path / "out.xyz")
    with pytest.raises(UserError, match="no ordinary file"):
        compress(light, source, "/dev/null", overwrite=True)


def test_a_read_only_folder_ends_in_one_sentence(
    light: SoundStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = recorded(tmp_path / "in.wav", 1000)
    opened = Path.open

    def refuse(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "x" in mode:
            raise PermissionError(13, "Permission denied")
        return opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"a\.mgl could not be written: Permission denied"):
        compress(light, source, tmp_path / "a.mgl")


def test_a_full_disk_ends_in_one_sentence_and_leaves_nothing(light: SoundStream, tmp_path: Path) -> None:
    source = recorded(tmp_path / "in.wav", 60 * 8000)
    compress(light, source, tmp_path / "good.mgl")
    before = left_in(tmp_path)
    for room in (0, 10, 3000):
        with disk_with_room_for(room), pytest.raises(UserError, match=r"a\.mgl could not be written: File too large"):
            compress(light, source, tmp_path / "a.mgl")
    for name in ("out.wav", "out.flac"):
        for room in (0, 10, 5000, 100000):
            with (
                disk_with_room_for(room),
                pytest.raises(UserError, match=rf"{name} could not be written: File too large"),
            ):
                decompress(light, tmp_path / "good.mgl", tmp_path / name)
    assert left_in(tmp_path) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_the_old_file(
    light: SoundStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    source = recorded(tmp_path / "in.wav", 3 * wave_streams.PIECE)
    compress(light, source, tmp_path / "a.mgl")
    decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise error

    with pytest.raises(error):
        compress(light, source, tmp_path / "a.mgl", num_quantizers=1, overwrite=True, progress=interrupt)
    with pytest.raises(error):
        decompress(light, tmp_path / "a.mgl", tmp_path / "out.wav", overwrite=True, progress=interrupt)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


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


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
