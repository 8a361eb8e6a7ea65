"""SYNTHETIC English speech: hibari-tts (voice "heart", Apache-2.0) reads WordNet examples.

Needs the Python package: pip install hibari-tts
(The script does not carry the name of that package, which it would hide from its own import.)
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from corpus import CorpusWriter, arguments, optional, rate_argument
from sentences import chosen_sentences, speak_for

SPEAKER = "hibari-heart"
LICENCE = "Apache-2.0"


class Voice(NamedTuple):
    """`speak` makes mono audio [samples] at `rate` of a text."""

    rate: int
    speak: Callable[[str], np.ndarray]


def heart(seed: int) -> Voice:
    """The voice, which says a text always in the same way."""
    hibari = optional("hibari", "pip install hibari-tts")
    voice = hibari.Hibari(voice="heart", threads=1)
    return Voice(voice.sample_rate, lambda text: voice(text, seed=seed))


def build(
    out: Path,
    cache: Path,
    seed: int,
    minutes: float,
    sample_rate: int | None = None,
    without: Collection[str] = (),
) -> None:
    """Write `minutes` of hibari speech into `out`."""
    voice = heart(seed)
    sentences = chosen_sentences(cache, f"{seed}/{SPEAKER}", without)
    with CorpusWriter(out, LICENCE, synthetic=True, sample_rate=sample_rate) as writer:
        speak_for(minutes, sentences, SPEAKER, voice.rate, voice.speak, writer)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/hibari_heart.py --out corpora/hibari --minutes 60")
    parser.add_argument("--minutes", type=float, default=60, metavar="N", help="how much speech (default: 60)")
    rate_argument(parser)
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.minutes, args.sample_rate)


if __name__ == "__main__":
    main()
