"""The demo: a voice that speaks at once, and a tiny codec from nothing to a page that can be heard.

Everything goes through the commands that a user would type.
"""

import json
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import typer

from madrigal.errors import UserError

WHO = ["The old captain", "My sister", "A young painter", "The night nurse", "Our neighbour", "The quiet boy"]
DID = ["carried", "forgot", "described", "repaired", "discovered", "borrowed", "returned", "measured"]
WHAT = ["a box of yellow letters", "the broken clock", "seven glass bottles", "her father's violin", "that heavy map"]
WHERE = ["under the bridge", "before the storm", "in the empty station", "after thirty years", "with great care"]


GREETING = "Good morning. This is a voice that Madrigal has trained; next it will train a codec, and you can watch."


def run_demo(out: Path) -> Path:
    """Speak, render, train, stop, resume, judge; returns the page."""
    recordings, run, spoken = out / "recordings", out / "run", out / "speech.wav"
    out.mkdir(parents=True, exist_ok=True)
    _madrigal(["say", GREETING, "--out", str(spoken), "--overwrite"])
    typer.echo(f"Spoken by the voice that comes with madrigal: listen to {spoken}")
    render_speech(recordings, minutes=4.0)
    train = ["train", "soundstream/demo", f"data={recordings}", "--run", str(run)]
    typer.echo("Training a codec; it is stopped half-way and resumed")
    _train_and_stop([*train, "--overwrite"], run)
    _madrigal(["train", "--resume", "--run", str(run)])
    evaluation = ["evaluate", str(run), "--kbps", "3,6", "--limit", "8", "--out", str(out / "evaluation")]
    _madrigal(evaluation)
    page = out / "report.html"
    (out / "evaluation" / "report.html").replace(page)
    return page


def render_speech(folder: Path, *, minutes: float, seed: int = 0) -> None:
    """Synthetic speech of one voice (hibari-tts, Apache-2.0) from sentences that a small grammar makes."""
    try:
        from hibari import Hibari
    except ImportError as error:
        raise UserError("The demo speaks with hibari-tts: pip install 'madrigal[demo]'.") from error
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    voice, rng = Hibari(voice="heart"), random.Random(seed)
    lines: list[str] = []
    seconds = 0.0
    while seconds < 60 * minutes:
        text = f"{rng.choice(WHO)} {rng.choice(DID)} {rng.choice(WHAT)} {rng.choice(WHERE)}."
        wave = voice(text, seed=seed)
        name = f"{len(lines):04d}.wav"
        soundfile.write(folder / name, wave, voice.sample_rate)
        seconds += len(wave) / voice.sample_rate
        lines.append(json.dumps({"file_name": name, "text": text}))
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    typer.echo(f"Rendered {seconds / 60:.1f} minutes of synthetic speech in {folder}")


def _train_and_stop(arguments: list[str], run: Path) -> None:
    """Start a training as a process of its own and ask it to stop, as a scheduler would, after its first checkpoint."""
    begun = time.time()
    process = subprocess.Popen(_command(arguments))
    while process.poll() is None and not _has_checkpoint_since(begun, run):
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _check(process.wait(), arguments)


def _has_checkpoint_since(moment: float, run: Path) -> bool:
    """Those of an earlier demo lie there until the training has begun, and then are gone."""
    for step in (run / "checkpoints").glob("step-*"):
        with suppress(FileNotFoundError):
            if step.stat().st_mtime > moment:
                return True
    return False


def _madrigal(arguments: list[str]) -> None:
    _check(subprocess.run(_command(arguments)).returncode, arguments)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "madrigal.cli", *arguments]


def _check(status: int, arguments: list[str]) -> None:
    if status:
        raise UserError(f"The demo stopped: `madrigal {' '.join(arguments)}` left with status {status}.")
