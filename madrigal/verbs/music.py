"""`generate` with a MusicLM: music from a text or from a sound like it, the best of several draws first."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.sounding import check_out
from madrigal.verbs.terminal import Bar, print_json

if TYPE_CHECKING:
    from torch import Tensor

    from madrigal.musiclm.music import MusicLM


def make_music(
    run: Path,
    *,
    text: str | None,
    like: Path | None,
    prompt: Path | None,
    seconds: float,
    n: int,
    seed: int,
    out: Path,
    sampling: Any,
    device: str,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Draw `n`, and write the best to the file `out`, or all of them, the best first, into the folder `out`."""
    if text is None and like is None and prompt is None:
        raise UserError("Say what the music should be with --text, or name a sound that it should be like with --like.")
    files = sound_files(out, n, overwrite=overwrite)
    if like is not None and not like.is_file():
        raise UserError(f"There is no file {like} that the music should be like; check --like.")

    from madrigal.data.audio import write
    from madrigal.engine.machine import prepare_process
    from madrigal.musiclm.loading import load_musiclm

    prepare_process()
    model = load_musiclm(run, device=device)
    heard: dict[str, Any] = {} if like is None else {"audio": _wave(model, like)[None]}
    heard |= {} if prompt is None else {"prime_wave": _wave(model, prompt)}
    with Bar("Generating"):  # all are drawn at once: it says that something goes on
        (drawn,) = model.draw(text, n, seconds=seconds, seed=seed, sampling=sampling, **heard)
    for file, wave in zip(files, drawn.waves, strict=False):
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, wave[None].cpu(), model.sample_rate)
    if as_json:
        told = {"files": list(map(str, files)), "scores": drawn.scores, "seconds": seconds, "seed": seed}
        print_json({**told, "sample_rate": model.sample_rate})
        return
    for file, score in zip(files, drawn.scores, strict=False):
        typer.echo(f"{file}  similarity {score:.3f}")


def sound_files(out: Path, n: int, *, overwrite: bool) -> list[Path]:
    """What is written, one .wav or n in a folder, checked before anything is loaded or drawn."""
    is_wave = out.suffix.lower() == ".wav"
    if is_sound(out) and not is_wave and not out.is_dir():
        raise UserError(f"{out} cannot be written, for sound is written as .wav; name such a file or a folder with -o.")
    files = [out] if is_wave else [out / f"{number:03d}.wav" for number in range(n)]
    for file in files:
        check_out(file, overwrite=overwrite)
    return files


def is_sound(path: Path) -> bool:
    """Whether the name is one of a file of sound."""
    from madrigal.data.layouts import FORMATS, OTHER_FORMATS, has_ending

    return has_ending(path, FORMATS + OTHER_FORMATS)


def _wave(model: "MusicLM", path: Path) -> "Tensor":
    """A file as a wave [samples] at the music's rate."""
    from madrigal.data.audio import DecodeError, read

    wave = read(path, sample_rate=model.sample_rate, channels=1)[0]
    if not wave.numel():
        raise DecodeError.of(path, "it has no samples")
    return wave
