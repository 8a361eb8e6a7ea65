"""`POST /v1/audio/speech`: a text, spoken while it is sent."""

import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from madrigal.studio.asking import BINARY, Seed, Text, check_at_most, check_length
from madrigal.studio.encoding import MEDIA_TYPES, Encoder, Format
from madrigal.studio.errors import ApiError, declared
from madrigal.studio.serving import studio_of
from madrigal.studio.streaming import Streamed, while_connected
from madrigal.studio.voices import DEFAULT
from madrigal.studio.work import check_wanted

router = APIRouter()
CHUNK_SECONDS = 4.0
"""Of what follows the first sentence: sound is made faster than it is heard, and of short pieces at a higher price."""


class SpeechRequest(BaseModel):
    """What OpenAI's clients send, and what a flow can be told beside."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str = Field(description="a model's id; OpenAI's names stand for the default")
    input: Text = Field(min_length=1, description="the text to say")
    voice: str | dict[str, str] = Field(DEFAULT, description="a voice's id, or 'default'")
    response_format: Format = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4.0)
    stream_format: Literal["audio", "sse"] = Field("audio", description="bytes, or events that hold them")
    instructions: str | None = Field(None, description="accepted, and without effect")
    steps: int | None = Field(None, ge=1, le=128, description="intervals of the flow's solver")
    cond_scale: float | None = Field(None, ge=0, le=20, description="over 1: lean on text and voice")
    seed: Seed = 0
    seconds: float | None = Field(None, ge=0.1, le=600, description="how long it takes to say it all")


_EVENTS: dict[str, Any] = {"schema": {"description": "events whose data is JSON: speech.audio.delta, and .done"}}
_AUDIO: dict[str, Any] = {**dict.fromkeys(MEDIA_TYPES.values(), BINARY), "text/event-stream": _EVENTS}


@router.post(
    "/v1/audio/speech",
    response_class=Response,
    responses={200: {"description": "The sound, as it is made", "content": _AUDIO}, **declared(404, 429, 504)},
    tags=["OpenAI"],
)
async def speech(asked: SpeechRequest, request: Request) -> Response:
    """Say a text. The answer begins before all of it is said."""
    begin = time.perf_counter()
    studio = studio_of(request)
    limits = studio.settings.limits
    end_of_work = time.monotonic() + limits.timeout_seconds
    check_length("input", asked.input, limits.text_characters)
    check_at_most("seconds", asked.seconds or 0.0, limits.spoken_seconds)
    if asked.seconds is not None and asked.speed != 1.0:
        raise ApiError(
            400, "seconds and speed both say how fast it is spoken: give one.", code="contradiction", param="speed"
        )
    model = await run_in_threadpool(studio.models.find, asked.model, "speech")
    name = asked.voice if isinstance(asked.voice, str) else asked.voice.get("id", DEFAULT)
    voice = await run_in_threadpool(studio.voices.find, model, name)
    options = {"steps": asked.steps, "cond_scale": asked.cond_scale, "seconds": asked.seconds, "seed": asked.seed}
    options |= {} if asked.speed == 1.0 else {"rate": asked.speed}
    spoken = _Spoken()

    def say() -> Iterator[bytes]:
        speaker = studio.models.loaded(model)
        prompt = None if voice is None else studio.prompt(voice)
        encoder = Encoder(asked.response_format, speaker.sample_rate)
        for piece in speaker.stream(asked.input, voice=prompt, growing=True, chunk_seconds=CHUNK_SECONDS, **options):
            check_wanted()  # not every piece makes bytes
            sound = _as_array(piece)
            spoken.samples += sound.shape[-1]
            spoken.rate = speaker.sample_rate
            if spoken.seconds > limits.spoken_seconds:
                raise ApiError(400, f"It takes over {limits.spoken_seconds:g} seconds to say this.", code="too_much")
            ready = encoder.add(sound)
            if ready:
                yield ready
        rest = encoder.end()
        if not spoken.samples:
            raise ApiError(400, "The model said nothing of this text; write more of it.", code="nothing_said")
        if rest:
            yield rest

    items = studio.line.submit(say).items()
    try:
        first = await while_connected(request, anext(items))
    except BaseException:
        await items.aclose()
        raise
    studio.watching.first_audio.observe(time.perf_counter() - begin)

    async def pieces() -> AsyncIterator[bytes]:
        async with aclosing(items):
            yield first
            async for item in items:
                yield item
        studio.watching.audio_seconds.labels(model.id).inc(spoken.seconds)

    made, media = pieces(), MEDIA_TYPES[asked.response_format]
    if asked.stream_format == "sse":
        made, media = _events(made, asked.input, spoken), "text/event-stream"
    headers = {"X-Madrigal-Sample-Rate": str(spoken.rate)}
    return Streamed(
        made,
        media,
        headers=headers,
        stall_seconds=limits.stall_seconds,
        until=lambda: end_of_work + spoken.seconds,  # who takes it as it is heard is never too slow
        close=items.aclose,
    )


class _Spoken:
    samples = 0
    rate = 1

    @property
    def seconds(self) -> float:
        return self.samples / self.rate


async def _events(pieces: AsyncIterator[bytes], text: str, spoken: _Spoken) -> AsyncIterator[bytes]:
    """Server-sent events, as OpenAI's streams of speech are."""
    async for piece in pieces:
        yield _event({"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()})
    usage = {"input_tokens": len(text), "output_tokens": spoken.samples, "total_tokens": len(text) + spoken.samples}
    yield _event({"type": "speech.audio.done", "usage": usage})


def _event(told: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(told)}\n\n".encode()


def _as_array(piece: Any) -> NDArray[np.float32]:
    """A piece [samples], or one channel of [channels, samples]."""
    sound = piece.detach().cpu().float().numpy()
    return sound if sound.ndim == 1 else sound.mean(0)
