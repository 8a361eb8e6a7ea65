"""REAL speech: the telephone prompts of Asterisk, one professional speaker a language, with transcripts.

The wide-band (16 kHz, G.722) takes are used; the wav packages of the same prompts are 8 kHz.
Spanish is not offered: it is the speaker of the English prompts, which are a test set.
Prompts that are tones, silence or effects (their transcript stands in brackets) and those without a
transcript are left out. Needs: pip install av
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus import CorpusWriter, arguments, optional, rate_argument
from packages import debian_package

RATE = 16_000


@dataclass(frozen=True)
class Prompts:
    """Who speaks the prompts of a language, and under which licence."""

    speaker: str
    licence: str


LANGUAGES = {
    "en": Prompts("asterisk-en-allison-smith", "CC-BY-SA-3.0"),
    "fr": Prompts("asterisk-fr-june-wallack", "CC-BY-SA-3.0"),
    "ru": Prompts("asterisk-ru-ivrvoice", "CC-BY-3.0"),
}


def transcripts(language: str, cache: Path) -> dict[str, str]:
    """Spoken prompts by their key, which is the path of the recording without its ending."""
    package = f"asterisk-core-sounds-{language}"
    path = debian_package(package, cache) / "usr/share/doc" / package / f"core-sounds-{language}.txt.gz"
    texts: dict[str, str] = {}
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, colon, text = line.partition(":")
            # Dots say that a prompt is one piece of a longer announcement; nobody speaks them.
            text = " ".join(text.replace("...", " ").split())
            if colon and text and not line.startswith(";") and text[0] not in "[<(":
                texts[key.strip()] = text
    return texts


def decode_g722(path: Path) -> np.ndarray:
    """Mono audio [samples] at 16 kHz of a raw G.722 file."""
    av = optional("av", "pip install av")
    with av.open(str(path), format="g722") as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    return np.concatenate(frames).astype(np.float32) / 32768.0


def build(out: Path, cache: Path, language: str, sample_rate: int | None = None) -> None:
    """Write the spoken prompts of a language into `out`."""
    prompts = LANGUAGES[language]
    texts = transcripts(language, cache)
    (sounds,) = (debian_package(f"asterisk-core-sounds-{language}-g722", cache) / "usr/share/asterisk/sounds").iterdir()
    with CorpusWriter(out, prompts.licence, synthetic=False, sample_rate=sample_rate) as writer:
        for path in sorted(sounds.rglob("*.g722")):
            key = path.relative_to(sounds).with_suffix("").as_posix()
            if key in texts:
                writer.add(key, decode_g722(path), RATE, texts[key], prompts.speaker)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/asterisk.py --out corpora/asterisk-fr --language fr")
    parser.add_argument("--language", choices=sorted(LANGUAGES), required=True)
    rate_argument(parser)
    args = parser.parse_args()
    build(args.out, args.cache, args.language, args.sample_rate)


if __name__ == "__main__":
    main()
