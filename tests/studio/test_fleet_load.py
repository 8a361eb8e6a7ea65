"""Fifty clients at once: every one of them is answered, or is told when to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from load import ANSWERED, BROKEN, LOST, REFUSED, ask, fates, load
from stand_ins import WORD, StandInVoice, in_a_loop

from madrigal.studio.errors import ApiError

WORDS = 6


def asking(number: int) -> dict[str, Any]:
    return {"model": "tts-1", "input": "word " * WORDS, "response_format": "pcm", "seed": number}


def test_fifty_clients_are_answered_or_told_when_to_come_back(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str], voice: StandInVoice
) -> None:
    voice.slow = 0.005
    app = make_app(limits={"waiting": 8})
    answers = in_a_loop(load(served(app), asking, clients=50, seconds=3, wait_at_most=0.3))
    seen = fates(answers)
    assert set(seen) == {ANSWERED, REFUSED}
    assert {answer.status for answer in answers} == {200, 429}
    assert all(answer.size == 2 * WORD * WORDS for answer in answers if answer.fate == ANSWERED)
    assert all(answer.retry_after >= 1 for answer in answers if answer.fate == REFUSED)
    # Nothing is left of them, a moment after the last has read its answer.
    studio, until = app.state.studio, time.monotonic() + 10
    while studio.is_busy and time.monotonic() < until:
        time.sleep(0.01)
    assert (studio.watching.now_open, studio.line.waiting, studio.line.working) == (0, 0, 0)


def test_clients_who_leave_make_room(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str], voice: StandInVoice
) -> None:
    voice.slow = 0.05
    app = make_app(limits={"waiting": 50})
    address = served(app)

    async def come_and_go() -> list[Any]:
        # Each would take six seconds, one after the other.
        long = {**asking(0), "input": "word " * 120}
        left = await asyncio.gather(*(ask(address, long, patience=0.5) for _ in range(30)))
        return [*left, await ask(address, asking(0), patience=20)]

    *left, last = in_a_loop(come_and_go())
    assert fates(left) == {LOST: 30}
    assert last.fate == ANSWERED


def test_an_answer_that_breaks_off_is_seen_as_broken(
    make_app: Callable[..., FastAPI], served: Callable[[FastAPI], str]
) -> None:
    class Breaking(StandInVoice):
        def stream(self, text: str, **options: Any) -> Any:
            yield from super().stream(text, **options)
            raise ApiError(500, "It breaks after its last word.")

    address = served(make_app(loaders={"speech": lambda *_: Breaking()}))
    assert in_a_loop(ask(address, asking(0))).fate == BROKEN
