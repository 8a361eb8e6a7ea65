"""Sources that cannot be read and targets that cannot be written: one sentence, and nothing half-written is left."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from recorded_sounds import disk_with_room_for, left_in, recorded, sound

from madrigal.errors import UserError
from madrigal.soundstream import wave_streams
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.compression import compress, decompress

pytestmark = pytest.mark.usefixtures("one_thread")


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
