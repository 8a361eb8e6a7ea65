"""What semantic tokens say of sounds and of voices, where the times of the phones are known.

Four voices of flite read the same sentences and tell their phones; festvox-ru comes with its phones. For each
tokenizer: how much of the phones' entropy and of the voices' entropy its tokens explain, and how often a sentence is
found again in another voice.

    python benchmarks/semantic_tokens.py runs/tokenizer runs/mel-kmeans --cache corpora/cache
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts" / "corpora"))

from festvox_ru import VOICE
from packages import debian_package
from sentences import chosen_sentences

from madrigal.data.audio import read
from madrigal.judge.tokens import explained, perplexity, retrieval, without_repeats
from madrigal.tokenizers import load_tokenizer

VOICES = ("awb", "kal16", "rms", "slt")
RUSSIAN = 78


@dataclass(frozen=True)
class Utterance:
    """A wave [1, samples] at 16 kHz and its phones, each with the second at which it ends."""

    wave: Any
    voice: str
    sentence: int
    phones: list[tuple[str, float]]

    def phone_at(self, second: float) -> str:
        return next((phone for phone, end in self.phones if second < end), "pau")


def flite(cache: Path, count: int) -> list[Utterance]:
    """`count` sentences in each voice."""
    program = debian_package("flite", cache) / "usr/bin/flite"
    (libraries,) = (debian_package("libflite1", cache) / "usr/lib").iterdir()
    texts = [text for text in chosen_sentences(cache, "semantic tokens") if 30 < len(text) < 90][:count]
    spoken = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        for number, text in enumerate(texts):
            for voice in VOICES:
                done = subprocess.run(
                    [str(program), "-voice", voice, "-t", text, "-psdur", "-o", str(path)],
                    env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
                    check=True,
                    capture_output=True,
                    text=True,
                )
                ends = [part.rsplit(":", 1) for part in done.stdout.split()]
                phones = [(phone, float(end)) for phone, end in ends]
                spoken.append(Utterance(read(path, sample_rate=16000, channels=1), voice, number, phones))
    return spoken


def festvox(cache: Path, count: int) -> list[Utterance]:
    """Sentences of a real voice, spread over the corpus."""
    folder = debian_package("festvox-ru", cache) / VOICE
    phones: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for line in (folder / "festival" / "clunits" / "msu_ru_nsh.catalogue").read_text().splitlines():
        parts = line.split()
        if len(parts) == 5 and parts[1].startswith("ru_"):
            phones[parts[1]].append((re.sub(r"_\d+$", "", parts[0]), float(parts[4])))
    names = sorted(phones)[:: max(1, len(phones) // count)][:count]
    return [
        Utterance(
            read(folder / "wav" / f"{name}.wav", sample_rate=16000, channels=1),
            "nsh",
            number,
            sorted(phones[name], key=lambda phone: phone[1]),
        )
        for number, name in enumerate(names)
    ]


def judge(name: str, english: list[Utterance], russian: list[Utterance]) -> dict[str, Any]:
    """The figures of one tokenizer."""
    tokenizer = load_tokenizer(name)

    def tokens(utterances: list[Utterance]) -> tuple[list[np.ndarray], list[str]]:
        rows = [tokenizer.tokenize(utterance.wave)[0][0].numpy() for utterance in utterances]
        places = [(u, (k + 0.5) / tokenizer.frame_rate) for u, row in zip(utterances, rows) for k in range(len(row))]
        return rows, [utterance.phone_at(second) for utterance, second in places]

    rows, phones = tokens(english)
    joined = np.concatenate(rows)
    voices = [u.voice for u, row in zip(english, rows) for _ in row]
    spoken = {(u.voice, u.sentence): without_repeats(row) for u, row in zip(english, rows)}
    russian_rows, russian_phones = tokens(russian)
    return {
        "tokenizer": name,
        "kind": tokenizer.kind,
        "codebook_size": tokenizer.codebook_size,
        "frame_rate": tokenizer.frame_rate,
        "frames": len(joined),
        "phones_english": explained(joined, phones),
        "phones_russian": explained(np.concatenate(russian_rows), russian_phones),
        "voices": explained(joined, voices),
        "perplexity": perplexity(joined),
        **retrieval(spoken),
    }


def main() -> None:
    """Read the command line, judge, and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", metavar="RUN", help="runs or folders of semantic tokenizers")
    parser.add_argument("--cache", type=Path, default=Path("corpora/cache"), help="where Debian packages are unpacked")
    parser.add_argument("--sentences", type=int, default=60, metavar="N", help="sentences that each voice reads")
    arguments = parser.parse_args()
    english, russian = flite(arguments.cache, arguments.sentences), festvox(arguments.cache, RUSSIAN)
    for name in arguments.tokenizers:
        print(json.dumps(judge(name, english, russian)), flush=True)


if __name__ == "__main__":
    main()
