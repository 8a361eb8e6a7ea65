"""The corpus of the `speartts/cpu` recipe: 16 kHz SYNTHETIC English speech of one voice, little of it with its text.

OUT/parallel  15 minutes with text: what a person can afford to transcribe
OUT/speech    3 hours without text
OUT/full      both of these with text: what a system would learn from if all were transcribed
OUT/test      100 further sentences, with text
OUT/voices    prompts of 3 seconds, cut from further sentences

The voice is hibari's "heart", the sentences are WordNet's. The manifests of the first three point to OUT/recordings,
which is spoken once. Test and prompts are the last sentences of the order that hibari_heart.py reads from the front, so
that no shorter or longer corpus of that voice and seed holds them, the codec's among them.
"""

from pathlib import Path

import numpy as np
import soundfile
from audiolm_speech import write_set
from corpus import MANIFEST, CorpusWriter, Row, arguments, read_manifest, resample, to_pcm16
from hibari_heart import LICENCE, SPEAKER, Voice, heart
from sentences import chosen_sentences, normalise, speak_for

RATE = 16_000
PARALLEL_MINUTES, SPEECH_MINUTES = 15.0, 180.0
TEST, VOICES, PROMPT_SECONDS = 100, 3, 3.0
# Sentences that no training set may hold: the test's, and more than enough for prompts of three seconds.
HELD_BACK = 200


def divide(rows: list[Row], minutes: float) -> tuple[list[Row], list[Row]]:
    """The recordings of the first `minutes`, and the rest."""
    spoken, count = 0.0, 0
    while count < len(rows) and spoken < minutes * 60:
        spoken += rows[count]["duration"]
        count += 1
    return rows[:count], rows[count:]


def without_text(row: Row) -> Row:
    """A row that does not say what is spoken."""
    return {name: value for name, value in row.items() if name != "text"}


def check_unheard(heard: list[Row], test: list[Row]) -> None:
    """Refuse a test that says a sentence of the other sets."""
    shared = {normalise(row["text"]) for row in heard} & {normalise(row["text"]) for row in test}
    if shared:
        raise ValueError(f"Sentences of the test set are in the others: {sorted(shared)[:3]}.")


def record_test(out: Path, sentences: list[str], voice: Voice) -> list[Row]:
    """The test's recordings, spoken where they are not there yet."""
    if not (out / MANIFEST).is_file():
        with CorpusWriter(out, LICENCE, synthetic=True, sample_rate=RATE) as writer:
            for number, text in enumerate(sentences):
                writer.add(f"{SPEAKER}/{number:05d}", voice.speak(text), voice.rate, text, SPEAKER)
    return read_manifest(out / MANIFEST)


def record_voices(out: Path, sentences: list[str], voice: Voice) -> None:
    """Prompts of exactly three seconds: the beginnings of the first sentences that are that long."""
    out.mkdir(parents=True, exist_ok=True)
    wanted, written = round(PROMPT_SECONDS * RATE), 0
    for text in sentences:
        pcm = to_pcm16(resample(np.asarray(voice.speak(text)), voice.rate, RATE))
        if len(pcm) >= wanted:
            soundfile.write(out / f"{SPEAKER}-{written}.wav", pcm[:wanted], RATE, subtype="PCM_16")
            written += 1
        if written == VOICES:
            return
    raise SystemExit(f"Only {written} of {VOICES} prompts are {PROMPT_SECONDS} seconds long.")


def build(
    out: Path,
    cache: Path,
    seed: int,
    parallel_minutes: float = PARALLEL_MINUTES,
    speech_minutes: float = SPEECH_MINUTES,
) -> None:
    """Speak what is missing, and write the manifests."""
    voice = heart(seed)
    order = chosen_sentences(cache, f"{seed}/{SPEAKER}")
    recordings, minutes = out / "recordings", parallel_minutes + speech_minutes
    if not (recordings / MANIFEST).is_file():
        with CorpusWriter(recordings, LICENCE, synthetic=True, sample_rate=RATE) as writer:
            speak_for(minutes, order[:-HELD_BACK], SPEAKER, voice.rate, voice.speak, writer)
    test = record_test(out / "test", order[-TEST:], voice)
    record_voices(out / "voices", order[-HELD_BACK:-TEST], voice)
    spoken = read_manifest(recordings / MANIFEST)
    check_unheard(spoken, test)
    if sum(row["duration"] for row in spoken) < 60 * minutes:
        raise SystemExit(f"{recordings} was spoken for a smaller corpus; name another folder, or remove that one.")
    rows = [{**row, "path": f"../recordings/{row['path']}"} for row in spoken]
    parallel, speech = divide(rows, parallel_minutes)
    sets = {"parallel": parallel, "speech": [without_text(row) for row in speech], "full": rows}
    for name, chosen in sets.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        write_set(out / name, chosen)


def main() -> None:
    """Read the command line and build the corpus."""
    parser = arguments(__doc__, "python scripts/corpora/spear_speech.py --out corpora/spear --seed 0")
    parser.add_argument(
        "--parallel-minutes", type=float, default=PARALLEL_MINUTES, metavar="M", help="with text (default: %(default)g)"
    )
    parser.add_argument(
        "--speech-minutes", type=float, default=SPEECH_MINUTES, metavar="M", help="without text (default: %(default)g)"
    )
    args = parser.parse_args()
    build(args.out, args.cache, args.seed, args.parallel_minutes, args.speech_minutes)


if __name__ == "__main__":
    main()
