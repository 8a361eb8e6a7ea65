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


def _tell(name: str, call: Callable[[], Any]) -> None:
    found = sorted(cpu_seconds(call) for _ in range(TIMES))
    print(f"  {name}: {found[TIMES // 2]:.3f} CPU s", flush=True)


if __name__ == "__main__":
    run_part(__doc__, {"first": first})
