"""What cannot be compressed or decompressed: one sentence, status 2, nothing half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import soundfile
from shell import CODEC, PlainUser, done, madrigal, on_full_disk, refused
from spoiled import NOT_COMPRESSED, cut, flip, spoil

# compress


@pytest.mark.parametrize("name", NOT_COMPRESSED)
def test_compress_what_is_no_sound(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    assert name in refused("compress", f"bad/{name}", "bad.mgl", *CODEC)


@pytest.mark.parametrize("name", ["silent.wav", "short.wav"])
def test_compress_silence_and_what_is_short(here: Path, name: str) -> None:
    spoil(Path("bad"), name)
    done("compress", f"bad/{name}", "bad.mgl", *CODEC)
    done("decompress", "bad.mgl", "bad.wav", *CODEC[:2])
    assert soundfile.info("bad.wav").frames == soundfile.info(f"bad/{name}").frames


@pytest.mark.parametrize("source", ["nowhere.wav", "recordings", "speech.mgl"])
def test_compress_what_is_no_file_of_sound(here: Path, source: str) -> None:
    sentence = refused("compress", source, "new.mgl", *CODEC)
    assert source in sentence
    assert ("is a folder; compress its files one at a time" in sentence) == (source == "recordings")


def test_compress_a_file_that_may_not_be_read(here: Path, plain_user: PlainUser) -> None:
    Path("recordings/0.wav").chmod(0)
    assert "recordings/0.wav" in refused("compress", "recordings/0.wav", "new.mgl", *CODEC, run=plain_user)


@pytest.mark.parametrize("kbps", ["0", "-3", "nan", "inf", "5", "1e9", "0.3"])
def test_compress_at_a_rate_that_the_codec_does_not_have(here: Path, kbps: str) -> None:
    sentence = refused("compress", "recordings/0.wav", "new.mgl", "--codec", "runs/codec", f"--kbps={kbps}")
    assert "the possible rates are 0.2, 0.4, 0.6 kbps" in sentence


@pytest.mark.parametrize("codec", ["nowhere", "./runs/nowhere", "recordings", "speech.mgl", "runs", ""])
def test_a_codec_that_is_not_there(here: Path, codec: str) -> None:
    sentences = {
        refused("compress", "recordings/0.wav", "new.mgl", "--codec", codec),
        refused("decompress", "speech.mgl", "new.wav", "--codec", codec),
        refused("export", codec, "new"),
        refused("evaluate", codec, "--data", "recordings"),
    }
    (sentence,) = sentences
    assert ("name one of them, runs/codec or runs/other" in sentence) == (codec == "runs")


@pytest.mark.parametrize("part", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["cut", "garbage", "gone"])
def test_a_codec_that_is_damaged(here: Path, part: str, how: str) -> None:
    path = Path("exported", part)
    if how == "cut":
        cut(path)
    elif how == "garbage":
        path.write_bytes(b"\x00\xff" * 200)
    else:
        path.unlink()
    assert "exported" in refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")


def test_a_codec_with_options_of_another_version(here: Path) -> None:
    path = Path("exported/config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "wormhole": True, "spectral_dim": -1}))
    sentence = refused("compress", "recordings/0.wav", "new.mgl", "--codec", "exported")
    assert "config.json" in sentence
    path.write_text("[]")
    assert "config.json" in refused("compress", "recordings/0.wav", "new.mgl", "--codec", "exported")


@pytest.mark.parametrize(
    ("verb", "source", "suffix"), [("compress", "recordings/0.wav", "mgl"), ("decompress", "speech.mgl", "wav")]
)
def test_a_result_that_cannot_be_written(
    here: Path, plain_user: PlainUser, verb: str, source: str, suffix: str
) -> None:
    codec = CODEC if verb == "compress" else CODEC[:2]
    Path(f"taken.{suffix}").write_text("precious")
    Path(f"folder.{suffix}").mkdir()
    Path("locked").mkdir(mode=0o500)
    assert "exists already" in refused(verb, source, f"taken.{suffix}", *codec)
    assert "is a folder" in refused(verb, source, f"folder.{suffix}", *codec)
    assert "there is no folder nowhere" in refused(verb, source, f"nowhere/new.{suffix}", *codec)
    assert "locked" in refused(verb, source, f"locked/new.{suffix}", *codec, run=plain_user)
    assert "could not be written" in refused(verb, source, f"new.{suffix}", *codec, run=on_full_disk(60))
    assert "could not be written" in refused(
        verb, source, f"taken.{suffix}", *codec, "--overwrite", run=on_full_disk(60)
    )


def test_a_result_in_the_place_of_its_source(here: Path) -> None:
    os.link("recordings/0.wav", "same.mgl")
    Path("link.wav").symlink_to("speech.mgl")
    assert "is the file to be read" in refused(
        "compress", "recordings/0.wav", "recordings/0.wav", *CODEC, "--overwrite"
    )
    assert "is the file to be read" in refused("compress", "recordings/0.wav", "same.mgl", *CODEC, "--overwrite")
    assert "is the file to be read" in refused("decompress", "speech.mgl", "link.wav", *CODEC[:2], "--overwrite")


# decompress


def test_decompress_a_file_with_one_bit_flipped(here: Path) -> None:
    """Any byte of the file: magic, header, codes, checksums or end."""
    whole = Path("speech.mgl").read_bytes()
    for position in range(len(whole)):
        Path("speech.mgl").write_bytes(whole)
        flip(Path("speech.mgl"), position, position % 8)
        said = madrigal("decompress", "speech.mgl", "new.wav", "--codec", "exported")
        assert said.status == 2
        assert said.err.startswith("madrigal: The file speech.mgl is ")
        assert said.err.count("\n") == 1
    Path("speech.mgl").write_bytes(whole)
    assert not Path("new.wav").exists()
    done("decompress", "speech.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 0.4, 0.7, 0.95, 0.999])
def test_decompress_a_truncated_file(here: Path, part: float) -> None:
    cut(Path("speech.mgl"), part)
    sentence = refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")
    assert "speech.mgl is " in sentence


def test_decompress_a_file_that_goes_on_after_its_end(here: Path) -> None:
    Path("speech.mgl").write_bytes(Path("speech.mgl").read_bytes() + b"\0")
    assert "damaged after its end" in refused("decompress", "speech.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("source", ["nowhere.mgl", "recordings", "recordings/0.wav", "garbage.mgl"])
def test_decompress_what_was_never_compressed(here: Path, source: str) -> None:
    Path("garbage.mgl").write_bytes(bytes(range(256)) * 20)
    assert source in refused("decompress", source, "new.wav", "--codec", "exported")


def test_decompress_with_another_codec(here: Path) -> None:
    assert "compressed with another codec" in refused("decompress", "other.mgl", "new.wav", "--codec", "exported")


@pytest.mark.parametrize("target", ["new.mp3", "new", "new.wav.mgl"])
def test_decompress_to_a_format_that_cannot_be_written(here: Path, target: str) -> None:
    assert ".wav or .flac" in refused("decompress", "speech.mgl", target, "--codec", "exported")
