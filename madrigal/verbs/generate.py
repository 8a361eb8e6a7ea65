"""`generate`: sound from a run, after a prompt, from a text, like another sound, or out of nothing."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.errors import UserError
from madrigal.verbs.sampling import Temperature, TopK, TopP, samplings
from madrigal.verbs.terminal import Bar, Device, Json, Overwrite, print_json, refuse

Samples = Annotated[int, typer.Option("--n", min=1, help="How many.")]
TEMPERATURE = "0.8,0.9,0.8"


def generate(
    runs: Annotated[list[Path], typer.Argument(help="A run of AudioLM, the runs of its stages, or a run of MusicLM.")],
    prompt: Annotated[Path | None, typer.Option("--prompt", help="An audio file to go on from.")] = None,
    text: Annotated[str | None, typer.Option(help="What to make, for stages trained with text, and MusicLM.")] = None,
    like: Annotated[Path | None, typer.Option(help="MusicLM: an audio file in the place of a text.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How much to make, after the prompt.")] = 5.0,
    n: Samples = 1,
    seed: Annotated[int, typer.Option(min=0, help="Sample i is drawn with seed + i.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the samples; MusicLM: or a .wav for the best.")
    ] = Path("generated"),
    temperature: Temperature = TEMPERATURE,
    top_k: TopK = None,
    top_p: TopP = None,
    repetition_penalty: Annotated[float, typer.Option(min=1.0, help="Over 1: recent tokens become less likely.")] = 1.0,
    cond_scale: Annotated[float, typer.Option(min=0.0, help="Over 1: lean on the text.")] = 1.0,
    tokenizer: Annotated[str | None, typer.Option(help="Where the semantic tokenizer is, if it has moved.")] = None,
    codec: Annotated[str | None, typer.Option(help="Where the codec is, if it has moved.")] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make sound with the three stages of AudioLM: speech that goes on in the voice of a prompt, or music from text.

    MusicLM ranks its samples by how well they fit the text.

    Example: `madrigal generate runs/audiolm --prompt in.wav --seconds 6 --seed 1 --n 4`
    """
    common = {"top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty, "cond_scale": cond_scale}
    if _makes_music(runs):
        from madrigal.verbs.music import make_music

        refuse({"tokenizer": tokenizer, "codec": codec}, "the stages of an AudioLM", f"{runs[0]} is a musiclm")
        make_music(
            runs[0],
            text=text,
            like=like,
            prompt=_checked(prompt),
            seconds=seconds,
            n=n,
            seed=seed,
            out=out,
            sampling=samplings(temperature, **common),
            device=device,
            overwrite=overwrite,
            as_json=as_json,
        )
        return
    if like is not None:
        raise UserError("--like is for a run of MusicLM; give an AudioLM a --prompt.")
    _checked(prompt)
    files = [out / f"{number:03d}.wav" for number in range(n)]
    taken = [file for file in files if file.exists()]
    if taken and not overwrite:
        raise UserError(f"{taken[0]} is there already; name another folder with -o, or replace it with --overwrite.")

    from madrigal.audiolm.loading import load_audiolm
    from madrigal.audiolm.pipeline import NO_CONDITION
    from madrigal.data.audio import write
    from madrigal.engine.machine import prepare_process

    prepare_process()
    sampling = samplings(temperature, **common)
    model = load_audiolm(runs, tokenizer=tokenizer, codec=codec, device=device)
    if text is not None and not model.is_conditioned:
        raise UserError(f"{NO_CONDITION}; leave --text out.")
    rate = model.codec.target_sample_hz
    with Bar("Generating") as bar:
        for number, file in enumerate(files):
            wave = model(
                seconds=seconds,
                prime_wave_path=prompt,
                text=None if text is None else [text],
                sampling=sampling,
                seed=seed + number,
            )[0]
            out.mkdir(parents=True, exist_ok=True)
            write(file, (wave if wave.ndim == 2 else wave[None]).cpu(), rate)
            bar(number + 1, n)
    if as_json:
        print_json({"files": [str(file) for file in files], "seconds": seconds, "sample_rate": rate, "seed": seed})
    else:
        typer.echo("\n".join(map(str, files)))


def _makes_music(runs: list[Path]) -> bool:
    from madrigal.musiclm.loading import is_musiclm

    return len(runs) == 1 and is_musiclm(runs[0])


def _checked(prompt: Path | None) -> Path | None:
    """The file to go on from, if there is one."""
    if prompt is not None and prompt.is_dir():
        raise UserError(f"{prompt} is a folder; name one audio file of it with --prompt.")
    if prompt is not None and not prompt.is_file():
        raise UserError(f"There is no file {prompt} to go on from; check --prompt.")
    return prompt
