"""SYNTHETIC English speech: four voices of Debian's flite (BSD-like) read WordNet examples at 16 kHz.

Unit selection and statistical voices of the 2000s: cheap further speakers, not a model of fidelity.
"""

import os
import subprocess
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from corpus import CorpusWriter, arguments, rate_argument
from packages import debian_package
from sentences import chosen_sentences, speak_for

VOICES = ("rms", "slt", "awb", "kal16")
RATE = 16_000


def speak(text: str, voice: str, cache: Path) -> np.ndarray:
    """Mono audio [samples] at 16 kHz of a sentence."""
    program = debian_package("flite", cache) / "usr/bin/flite"
    (libraries,) = (debian_package("libflite1", cache) / "usr/lib").iterdir()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        subprocess.run(
            [str(program), "-voice", voice, "-t", text, "-o", str(path)],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            check=True,
        )
        audio, rate = soundfile.read(path, dtype="float32")
    if rate != RATE:
        raise ValueError(f"The flite voice '{voice}' speaks at {rate} Hz, not at {RATE}.")
    return audio


def build(
    out: Path,
    cache: Path,
    seed: int,
    minutes: float,
    sample_rate: int | None = None,
    without: Collection[str] = (),
) -> None:
    """Write `minutes` of speech of each voice into `out`."""
    with CorpusWriter(out, "BSD-like (flite)", synthetic=True, sample_rate=sample_rate) as writer:
        for voice in VOICES:
            speaker = f"flite-{voice}"
            sentences = chosen_sentences(cache, f"{seed}/{speaker}", without)
            speak_for(minutes, sentences, speaker, RATE, partial(speak, voice=voice, cache=cache), writer)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/flite.py --out corpora/flite --minutes 10")
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="speech of each voice (default: 10)")
    rate_argument(parser)
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.minutes, args.sample_rate)


if __name__ == "__main__":
    main()
