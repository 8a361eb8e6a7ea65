"""REAL speech: the 620 studio sentences of Debian's festvox-ru, one Russian man, 16 kHz, with their text.

A '+' in the source text marks the stress of the vowel after it; the manifest holds the text without it.
"""

import re
from pathlib import Path

import soundfile
from corpus import CorpusWriter, arguments, rate_argument
from packages import debian_package

VOICE = "usr/share/festival/voices/russian/msu_ru_nsh_clunits"
PROMPT = re.compile(r'\(\s*(\S+)\s+"(.*)"\s*\)')


def build(out: Path, cache: Path, sample_rate: int | None = None) -> None:
    """Write all sentences into `out`."""
    voice = debian_package("festvox-ru", cache) / VOICE
    texts = dict(PROMPT.findall((voice / "etc" / "txt.done.data").read_text(encoding="utf-8")))
    with CorpusWriter(out, "BSD-like (festvox-ru)", synthetic=False, sample_rate=sample_rate) as writer:
        for path in sorted((voice / "wav").glob("*.wav")):
            audio, rate = soundfile.read(path, dtype="float32")
            text = " ".join(texts.get(path.stem, "").replace("+", "").split())
            writer.add(path.stem, audio, rate, text, "festvox-ru-nsh")


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/festvox_ru.py --out corpora/festvox-ru")
    rate_argument(parser)
    args = parser.parse_args()
    build(args.out, args.cache, args.sample_rate)


if __name__ == "__main__":
    main()
