"""`compress` and `decompress`: recordings as files of codes, and back."""

from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.terminal import Bar, Json, Overwrite, print_json

Codec = Annotated[
    str, typer.Option("--codec", help="A shipped codec's name, a run, a checkpoint, an exported folder or a hub name.")
]


def compress(
    source: Annotated[Path, typer.Argument(help="An audio file of any length.")],
    target: Annotated[Path, typer.Argument(help="The .mgl file to write.")],
    kbps: Annotated[float, typer.Option(help="Thousands of bits per second, all channels together.")] = 6.0,
    codec: Codec = "speech-16k",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Compress a recording with a neural codec.

    Example: `madrigal compress speech.wav speech.mgl --kbps 6`
    """
    from madrigal.soundstream.compression import compress as run

    _check_is_file(source, "compress")
    model = _codec(codec)
    with Bar("Compressing") as bar:
        done = run(model, source, target, kbps=kbps, codec_name=codec, overwrite=overwrite, progress=bar)
    if as_json:
        print_json({"seconds": done.seconds, "bytes": done.bytes, "kbps": done.kbps, "file": str(target)})
    else:
        typer.echo(f"{done.seconds:.1f} s -> {done.bytes} bytes, {done.kbps:.2f} kbps: {target}")


def decompress(
    source: Annotated[Path, typer.Argument(help="A .mgl file.")],
    target: Annotated[Path, typer.Argument(help="The audio file to write: wav or flac.")],
    codec: Codec = "speech-16k",
    overwrite: Overwrite = False,
) -> None:
    """Turn a compressed recording back into audio, with the codec that compressed it.

    Example: `madrigal decompress speech.mgl speech.wav`
    """
    from madrigal.soundstream.compression import decompress as run

    _check_is_file(source, "decompress")
    model = _codec(codec)
    with Bar("Decompressing") as bar:
        run(model, source, target, overwrite=overwrite, progress=bar)
    typer.echo(f"{target}")


def _check_is_file(source: Path, verb: str) -> None:
    if source.is_dir():
        raise UserError(f"{source} is a folder; {verb} its files one at a time, each to a file of its own.")


def _codec(name: str) -> Any:
    from madrigal.engine.machine import prepare_process
    from madrigal.soundstream.codec import SoundStream

    prepare_process()
    return SoundStream.from_pretrained(name, discriminators=False).eval()
