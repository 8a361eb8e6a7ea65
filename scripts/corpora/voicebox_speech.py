"""The corpus of the `voicebox/cpu` recipe: 24 kHz SYNTHETIC English speech with its text.

OUT/train        hibari's "heart" for hours, and voices of Kokoro for some minutes each
OUT/valid        every fiftieth recording of each voice
OUT/test         100 further sentences by "heart"; recordings of the other voices without texts, to be told from her
OUT/test-voices  the first 20 of them by "heart" and by each of four other voices

The sentences are WordNet's, and no voice says one of the test's in training. The manifests point to OUT/recordings, a
folder for each voice that is spoken once. Kokoro is slow and comes last: the manifests grow with every voice that is
finished, and after an interruption the next call goes on with the voice that was being spoken.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import hibari_heart
import kokoro
import numpy as np
from audiolm_speech import write_set
from corpus import MANIFEST, CorpusWriter, Row, arguments, read_manifest
from packages import npm_package
from sentences import chosen_sentences, normalise, speak_for
from spear_speech import HELD_BACK, TEST, check_unheard

RATE = 24_000
LICENCE = "Apache-2.0"
HEART_HOURS, VOICES, MINUTES = 4.0, 4, 6.0
TEST_VOICES, TEST_EACH = 4, 20
VALID_EVERY = 50

Speak = Callable[[str], np.ndarray]
"""Text to mono audio [samples] at 24 kHz."""


def record(out: Path, speaker: str, minutes: float, sentences: list[str], speak: Callable[[], Speak]) -> None:
    """Let one voice read until it spoke for `minutes`, unless it has."""
    if not (out / MANIFEST).is_file():
        with CorpusWriter(out, LICENCE, synthetic=True, sample_rate=RATE) as writer:
            speak_for(minutes, sentences, speaker, RATE, speak(), writer)


def record_all(out: Path, speaker: str, sentences: Sequence[str], speak: Callable[[], Speak]) -> None:
    """Let one voice read all of these sentences, unless it has."""
    if not (out / MANIFEST).is_file():
        voice = speak()
        with CorpusWriter(out, LICENCE, synthetic=True, sample_rate=RATE) as writer:
            for number, text in enumerate(sentences):
                writer.add(f"{speaker}/{number:05d}", voice(text), RATE, text, speaker)


def rows_of(recordings: Path, folders: Sequence[str]) -> list[Row]:
    """The rows of the folders that are finished, with paths that start from a folder beside `recordings`."""
    return [
        {**row, "path": f"../{recordings.name}/{folder}/{row['path']}"}
        for folder in folders
        if (recordings / folder / MANIFEST).is_file()
        for row in read_manifest(recordings / folder / MANIFEST)
    ]


def divide(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """(train, valid): every fiftieth recording of each voice is kept for validation, and at least one."""
    counts: dict[str, int] = {}
    train: list[Row] = []
    valid: list[Row] = []
    for row in rows:
        number = counts[row["speaker"]] = counts.get(row["speaker"], -1) + 1
        (valid if number % VALID_EVERY == 0 else train).append(row)
    # A sentence that one voice says in training would be known in another voice's validation.
    kept = {normalise(row["text"]) for row in valid}
    return [row for row in train if normalise(row["text"]) not in kept], valid


def write_sets(out: Path, speakers: Sequence[str]) -> None:
    """Write the manifests of what is finished so far."""
    recordings = out / "recordings"
    train, valid = divide(rows_of(recordings, speakers))
    test = rows_of(recordings, ["test"])
    by_voices = rows_of(recordings, [f"test-{speaker}" for speaker in speakers[1 : 1 + TEST_VOICES]])
    check_unheard([*train, *valid], [*test, *by_voices])
    untold = [{key: value for key, value in row.items() if key != "text"} for row in by_voices]
    sets = {"train": train, "valid": valid, "test": [*test, *untold], "test-voices": [*test[:TEST_EACH], *by_voices]}
    for name, rows in sets.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        write_set(out / name, rows)


def build(
    out: Path,
    cache: Path,
    seed: int,
    hours: float = HEART_HOURS,
    voices: int = VOICES,
    minutes: float = MINUTES,
) -> None:
    """Speak what is missing, the quick voice first, and write the manifests after every voice."""
    order = chosen_sentences(cache, f"{seed}/{hibari_heart.SPEAKER}")
    test = order[-TEST:]
    unheard = {normalise(text) for text in order[-HELD_BACK:]}
    recordings, heart = out / "recordings", hibari_heart.SPEAKER
    record_all(recordings / "test", heart, test, lambda: hibari_heart.heart(seed).speak)
    record(recordings / heart, heart, 60 * hours, order[:-HELD_BACK], lambda: hibari_heart.heart(seed).speak)
    names = kokoro_voices(cache, voices, seed)
    speakers = [heart, *(f"kokoro-{name}" for name in names)]
    write_sets(out, speakers)
    for number, (name, speaker) in enumerate(zip(names, speakers[1:], strict=True)):
        speak = lambda name=name: kokoro_speak(name, cache, seed)
        if number < TEST_VOICES:
            record_all(recordings / f"test-{speaker}", speaker, test[:TEST_EACH], speak)
        record(recordings / speaker, speaker, minutes, chosen_sentences(cache, f"{seed}/{speaker}", unheard), speak)
        write_sets(out, speakers)


def kokoro_voices(cache: Path, count: int, seed: int) -> list[str]:
    """The names of Kokoro's voices, women and men, American and British in turn."""
    return kokoro.choose_voices(npm_package("kokoro-js", "1.2.1", cache) / "voices", count, seed) if count else []


def kokoro_speak(name: str, cache: Path, seed: int) -> Speak:
    """One of them, ready to speak."""
    folder = npm_package("kokoro-js", "1.2.1", cache) / "voices"
    return kokoro.speaking(kokoro.load_model(cache, seed), name, folder)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/voicebox_speech.py --out corpora/voicebox --seed 0")
    parser.add_argument("--hours", type=float, default=HEART_HOURS, metavar="H", help='of "heart" (default: 4)')
    parser.add_argument("--voices", type=int, default=VOICES, metavar="N", help="of Kokoro, at most 27 (default: 4)")
    parser.add_argument("--minutes", type=float, default=MINUTES, metavar="M", help="of each of these (default: 6)")
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.hours, args.voices, args.minutes)


if __name__ == "__main__":
    main()
