"""Where the time to the first sound goes: CPU seconds of the shipped voice, whole sentences beside growing parts.

On a machine that is idle the time is less than that, by as much as two threads are faster than one; what a client
waits for is told by studio_load.py.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import Records, cpu_seconds, run_part

TEXT = "Good morning, this is how long it takes until the first words of a sentence are heard."
TIMES = 5
HARVARD = (
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It's easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "The hogs were fed chopped corn and garbage.",
    "Four hours of steady work faced us.",
    "A large size in stockings is hard to sell.",
    "The boy was there when the sun rose.",
    "A rod is used to catch pink salmon.",
    "The source of the huge river is the clear spring.",
    "Kick the ball straight and follow through.",
    "Help the woman get back to her feet.",
    "A pot of tea helps to pass the evening.",
    "Smoky fires lack flame and heat.",
    "The soft cushion broke the man's fall.",
    "The salt breeze came across from the sea.",
    "The girl at the booth sold fifty bonds.",
)
"""Sentences of the Harvard lists (IEEE, 1969)."""


def first(_: str, __: Path, ___: Records) -> None:
    """To the first sound, and to the end, in both ways; and the parts of the way."""
    from madrigal.voicebox.growing import DURATION_STEPS, parts_of
    from madrigal.voicebox.loading import load_voicebox

    model = load_voicebox()
    voice = model.voice(None)
    how = model.drawing
    quick = how.but(duration_steps=DURATION_STEPS)
    for growing in (True, False):
        begin, heard = time.process_time(), 0
        sound = model.stream(TEXT, voice=voice, growing=growing, chunk_seconds=4.0)
        for number, piece in enumerate(sound):
            heard += len(piece)
            if number == 0:
                name = "growing" if growing else "whole sentences"
                print(f"{name}: first sound after {time.process_time() - begin:.3f} CPU s", end=", ", flush=True)
        seconds = heard / model.sample_rate
        print(f"real-time factor {(time.process_time() - begin) / seconds:.2f} (CPU)", flush=True)
    line = model.lines([TEXT], voice, seeds=[0], how=quick)[0]
    row = model.features_of([line], voice, how, [0])[0]
    cut = parts_of(line, model.aligner.symbols.silence, model.frame_rate)[0]
    _tell("text to phonemes", lambda: model.script(TEXT))
    _tell("durations", lambda: model.lines([TEXT], voice, seeds=[0], how=quick))
    _tell("durations in full", lambda: model.lines([TEXT], voice, seeds=[0], how=how))
    _tell("flow, the whole sentence", lambda: model.features_of([line], voice, how, [0]))
    _tell(f"vocoder, {cut / model.frame_rate:.2f} s", lambda: model.features.decode(row[None, :cut]))


def words(_: str, __: Path, ___: Records) -> None:
    """What growing parts cost: words that a recogniser gets wrong, of all and of the first three of each sentence."""
    import jiwer
    import torch

    from madrigal.judge.normalise import normalise
    from madrigal.judge.recognisers import find_recognisers
    from madrigal.voicebox.loading import load_voicebox

    model = load_voicebox()
    name, recogniser = next(iter(find_recognisers().items()))
    for growing in (True, False):
        wrong, first_wrong = [], []
        for seed, text in enumerate(HARVARD):
            sound = torch.cat(list(model.stream(text, growing=growing, chunk_seconds=4.0, seed=seed))).clamp(-1, 1)
            said = normalise(text)
            heard = normalise(recogniser.transcribe(sound[None].numpy(), model.sample_rate)) or "-"
            wrong.append(jiwer.process_words(said, heard).wer * len(said.split()))
            begin = " ".join(said.split()[:3])
            first_wrong.append(3 - jiwer.process_words(begin, " ".join(heard.split()[:3])).hits)
        count = sum(len(normalise(text).split()) for text in HARVARD)
        print(
            f"{'growing' if growing else 'whole sentences'}: {name} gets {sum(wrong) / count:.1%} of {count} words "
            f"wrong, of the first three of a sentence {sum(first_wrong) / 3 / len(HARVARD):.1%}",
            flush=True,
        )


def _tell(name: str, call: Callable[[], Any]) -> None:
    found = sorted(cpu_seconds(call) for _ in range(TIMES))
    print(f"  {name}: {found[TIMES // 2]:.3f} CPU s", flush=True)


if __name__ == "__main__":
    run_part(__doc__, {"first": first, "words": words})
