"""`generate`: sound from a run, after a prompt, from a text, like another sound, or out of nothing; or pictures."""

from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.music import sound_files
from madrigal.verbs.picture_making import PICTURES, ClassName, Negative, PictureSize, PictureSteps, makes_pictures
from madrigal.verbs.picture_making import generate as generate_pictures
from madrigal.verbs.sampling import Guidance, Recall, TopK, TopP, one_scale, samplings
from madrigal.verbs.terminal import LONGEST, Bar, Device, Json, Overwrite, print_json, refuse

Samples = Annotated[int, typer.Option("--n", min=1, help="How many.")]
TEMPERATURE, RECALL = "0.8,0.5,0.5", "0,0.5,0.5"
MUSIC_TEMPERATURE = "0.8,0.9,0.8"


def generate(
    runs: Annotated[
        list[Path], typer.Argument(help="A run of AudioLM, the runs of its stages, a run of MusicLM, or one of Muse.")
    ],
    prompt: Annotated[Path | None, typer.Option("--prompt", help="An audio file to go on from.")] = None,
    text: Annotated[
        str | None, typer.Option(help="What to make, for MusicLM, Muse, and stages trained with text.")
    ] = None,
    like: Annotated[Path | None, typer.Option(help="MusicLM: an audio file in the place of a text.")] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, max=LONGEST, help="How much to make, after the prompt; default: 5.")
    ] = None,
    n: Samples = 1,
    seed: Annotated[int, typer.Option(min=0, help="Sample i is drawn with seed + i.")] = 0,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="The folder of the samples, a .wav for one (of music, for the best), or a page.png."
        ),
    ] = Path("generated"),
    temperature: Annotated[
        str | None,
        typer.Option(
            "--temperature",
            help=f"For all stages, or semantic,coarse,fine; default: {TEMPERATURE}, of music {MUSIC_TEMPERATURE}.",
        ),
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(min=1.0, help="Over 1: recent tokens become less likely.")
    ] = None,
    recall: Recall = None,
    cond_scale: Guidance = None,
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
    """Make sound with AudioLM's stages: speech that goes on in the voice of a prompt, or music from text. Or pictures.

    MusicLM ranks its samples by how well they fit the text.

    Example: `madrigal generate runs/audiolm --prompt in.wav --seconds 6 --seed 1 --n 4`

    Example: `madrigal generate runs/muse --text "a red apple" --n 16 -o apples.png`
    """
    of_sound = {"prompt": prompt, "like": like, "seconds": seconds, "top_k": top_k, "top_p": top_p, "codec": codec}
    of_sound |= {"repetition_penalty": repetition_penalty, "recall": recall, "tokenizer": tokenizer}
    of_pictures = {"negative": negative, "steps": steps, "class": class_name, "size": size}
    if makes_pictures(runs):
        refuse(of_sound, "sound", f"{runs[0]} makes pictures")
        how = {"temperature": temperature, "cond_scale": one_scale(cond_scale), "timesteps": steps}
        asked: Any = {"text": text, "negative": negative, "class_name": class_name, "size": size, "n": n, "seed": seed}
        generate_pictures(runs[0], out, **asked, how=how, device=device, overwrite=overwrite, as_json=as_json)
        return
    refuse(of_pictures, PICTURES, f"{runs[0]} makes sound")
    seconds = 5.0 if seconds is None else seconds
    common = {"top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty or 1.0}
    if recall is not None and prompt is None:
        raise UserError("--recall is of a prompt: give one with --prompt, or leave --recall out.")
    is_music = _makes_music(runs)
    temperature = temperature or (MUSIC_TEMPERATURE if is_music else TEMPERATURE)
    sampling = samplings(temperature, cond_scale, recall or ("0" if is_music else RECALL), **common)
    if is_music:
        from madrigal.verbs.music import make_music

        refuse({"tokenizer": tokenizer, "codec": codec}, "the stages of an AudioLM", f"{runs[0]} is a musiclm")
        told: Any = {"text": text, "like": like, "prompt": _checked(prompt), "seconds": seconds, "n": n, "seed": seed}
        make_music(runs[0], **told, out=out, sampling=sampling, device=device, overwrite=overwrite, as_json=as_json)
        return
    if like is not None:
        raise UserError("--like is for a run of MusicLM; give an AudioLM a --prompt.")
    _checked(prompt)
    files = sound_files(out, n, overwrite=overwrite)
    if len(files) < n:
        raise UserError(f"{n} samples do not go into one file, {out}: name a folder with -o, or leave --n out.")

    from madrigal.audiolm.loading import load_audiolm
    from madrigal.audiolm.pipeline import NO_CONDITION
    from madrigal.data.audio import write
    from madrigal.engine.machine import prepare_process

    prepare_process()
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
            file.parent.mkdir(parents=True, exist_ok=True)
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
