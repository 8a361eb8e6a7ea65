"""`generate`: sound from a run, after a prompt, from a text, or out of nothing; or pictures, by `picture_making`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.picture_making import PICTURES, ClassName, Negative, PictureSize, PictureSteps, makes_pictures
from madrigal.verbs.picture_making import generate as generate_pictures
from madrigal.verbs.sampling import TopK, TopP, samplings
from madrigal.verbs.terminal import Bar, Device, Json, Overwrite, print_json, refuse

Samples = Annotated[int, typer.Option("--n", min=1, help="How many.")]
TEMPERATURE = "0.8,0.9,0.8"


def generate(
    runs: Annotated[list[Path], typer.Argument(help="An AudioLM run, or the runs of its stages; or a Muse run.")],
    prompt: Annotated[Path | None, typer.Option("--prompt", help="An audio file to go on from.")] = None,
    text: Annotated[
        str | None, typer.Option(help="What to make a picture of; sound: for stages trained with text.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="How much to make, after the prompt; default: 5.")
    ] = None,
    n: Samples = 1,
    seed: Annotated[int, typer.Option(min=0, help="Sample i is drawn with seed + i.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder of the samples; pictures: a folder or a page.png.")
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option("--temperature", help=f"For all stages, or semantic,coarse,fine; default: {TEMPERATURE}."),
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(min=1.0, help="Over 1: recent tokens become less likely.")
    ] = None,
    cond_scale: Annotated[float | None, typer.Option(min=0.0, help="Over 1: lean on the text.")] = None,
    negative: Negative = None,
    steps: PictureSteps = None,
    class_name: ClassName = None,
    size: PictureSize = None,
    tokenizer: Annotated[str | None, typer.Option(help="Where the semantic tokenizer is, if it has moved.")] = None,
    codec: Annotated[str | None, typer.Option(help="Where the codec is, if it has moved.")] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make sound with the three stages of AudioLM: speech that goes on in the voice of a prompt. Or make pictures.

    Example: `madrigal generate runs/audiolm --prompt in.wav --seconds 6 --seed 1 --n 4`

    Example: `madrigal generate runs/muse --text "a red apple" --n 16 -o apples.png`
    """
    of_sound = {"prompt": prompt, "seconds": seconds, "top_k": top_k, "top_p": top_p, "codec": codec}
    of_sound |= {"repetition_penalty": repetition_penalty, "tokenizer": tokenizer}
    of_pictures = {"negative": negative, "steps": steps, "class": class_name, "size": size}
    if makes_pictures(runs):
        refuse(of_sound, "sound", f"{runs[0]} makes pictures")
        how = {"temperature": temperature, "cond_scale": cond_scale, "timesteps": steps}
        asked: Any = {"text": text, "negative": negative, "class_name": class_name, "size": size, "n": n, "seed": seed}
        where = out or Path("generated")
        generate_pictures(runs[0], where, **asked, how=how, device=device, overwrite=overwrite, as_json=as_json)
        return
    refuse(of_pictures, PICTURES, f"{runs[0]} makes sound")
    out, seconds = out or Path("generated"), 5.0 if seconds is None else seconds
    files = [out / f"{number:03d}.wav" for number in range(n)]
    taken = [file for file in files if file.exists()]
    if taken and not overwrite:
        raise UserError(f"{taken[0]} is there already; name another folder with -o, or replace it with --overwrite.")
    if prompt is not None and prompt.is_dir():
        raise UserError(f"{prompt} is a folder; name one audio file of it with --prompt.")
    if prompt is not None and not prompt.is_file():
        raise UserError(f"There is no file {prompt} to go on from; check --prompt.")

    from madrigal.audiolm.loading import load_audiolm
    from madrigal.audiolm.pipeline import NO_CONDITION
    from madrigal.data.audio import write
    from madrigal.engine.machine import prepare_process

    prepare_process()
    common = {"top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty or 1.0}
    sampling = samplings(temperature or TEMPERATURE, **common, cond_scale=1.0 if cond_scale is None else cond_scale)
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
