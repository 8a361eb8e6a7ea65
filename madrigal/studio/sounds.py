"""Sound that goes on, music from text, and recordings as codes and back."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, FailFast, Field
from starlette.concurrency import run_in_threadpool

from madrigal.audiolm.draws import MUSIC, SPEECH
from madrigal.studio.asking import (
    SOUND,
    WAV,
    FormSeed,
    ModelName,
    Recording,
    Seed,
    Text,
    check_at_most,
    check_length,
    worked,
)
from madrigal.studio.encoding import MEDIA_TYPES, Format, encoded
from madrigal.studio.errors import ApiError, declared
from madrigal.studio.serving import studio_of
from madrigal.studio.uploads import content_of, wave_of

router = APIRouter(tags=["sound"])


def _mono(wave: Any) -> np.ndarray:
    sound = wave.detach().cpu().float()
    return (sound if sound.ndim == 1 else sound.reshape(-1, sound.shape[-1]).mean(0)).numpy()


@router.post("/v1/audio/continuations", response_class=Response, responses={**WAV, **declared(404, 429, 504)})
async def continuations(
    request: Request,
    file: Recording,
    seconds: Annotated[float, Form(ge=0.1, le=600, allow_inf_nan=False, description="how much to make")] = 5.0,
    seed: FormSeed = 0,
    model: ModelName = None,
) -> Response:
    """The recording, and how it may go on."""
    studio = studio_of(request)
    limits = studio.settings.limits
    check_at_most("seconds", seconds, limits.made_seconds)
    found = await run_in_threadpool(studio.models.find, model or None, "continuation")
    data = await content_of(file)

    def go_on() -> bytes:
        audiolm = studio.models.loaded(found)
        rate = int(audiolm.codec.target_sample_hz)
        prompt = wave_of(data, rate, most_seconds=limits.prompt_seconds, least_seconds=0.2)
        wave = audiolm(prime_wave=prompt, seconds=seconds, seed=seed, sampling=SPEECH)[0]
        return studio.made(encoded(_mono(wave), "wav", rate), found.id, wave.shape[-1] / rate)

    return Response(await worked(request, studio, go_on), media_type=MEDIA_TYPES["wav"])


class MusicRequest(BaseModel):
    """A description, and how much music of it."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: Text = Field(min_length=1, description="what the music should be")
    seconds: float = Field(5.0, ge=0.1, le=600)
    n: int = Field(1, ge=1, le=16, description="how many are drawn; the one that fits best is sent")
    seed: Seed = 0
    model: str | None = None
    response_format: Format = "wav"


@router.post("/v1/audio/music", response_class=Response, responses={**SOUND, **declared(404, 429, 504)})
async def music(asked: MusicRequest, request: Request) -> Response:
    """Music from a text: of several draws the one that fits it best."""
    studio = studio_of(request)
    check_length("prompt", asked.prompt, studio.settings.limits.prompt_characters)
    check_at_most("seconds", asked.seconds, studio.settings.limits.made_seconds)
    found = await run_in_threadpool(studio.models.find, asked.model or None, "music")

    def make() -> tuple[bytes, float]:
        musiclm = studio.models.loaded(found)
        (drawn,) = musiclm.draw(asked.prompt, asked.n, seconds=asked.seconds, seed=asked.seed, sampling=MUSIC)
        wave, rate = drawn.waves[0], musiclm.sample_rate
        sent = encoded(_mono(wave), asked.response_format, rate)
        return studio.made(sent, found.id, wave.shape[-1] / rate), drawn.scores[0]

    sound, score = await worked(request, studio, make)
    headers = {"X-Madrigal-Similarity": f"{score:.4f}"}
    return Response(sound, media_type=MEDIA_TYPES[asked.response_format], headers=headers)


# Of a long list that is wrong throughout, one error is enough.
_Frame = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=1024), FailFast()]


class Codes(BaseModel):
    """A recording in a codec's codes, [frames][levels]; `samples` is its length, to the sample."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    sample_rate: int | None = None
    codes: Annotated[list[_Frame], Field(min_length=1, max_length=100_000), FailFast()]
    samples: int | None = Field(None, ge=1)


class CodesAnswer(BaseModel):
    model: str
    sample_rate: int
    codes: list[list[int]]
    samples: int


@router.post("/v1/audio/codes", response_model=CodesAnswer, responses=declared(404, 429, 504))
async def codes(
    request: Request,
    file: Recording,
    model: ModelName = None,
    levels: Annotated[int | None, Form(ge=1, le=1024, description="codebooks; default: all")] = None,
) -> Any:
    """A recording as the codes of a codec."""
    studio = studio_of(request)
    found = await run_in_threadpool(studio.models.find, model or None, "codec")
    data = await content_of(file)

    def encode() -> dict[str, Any]:
        codec = studio.models.loaded(found)
        rate = int(codec.target_sample_hz)
        wave = wave_of(data, rate, most_seconds=studio.settings.limits.audio_seconds)
        if levels is not None and levels > codec.num_quantizers:
            raise ApiError(400, f"levels is {levels}, and there are {codec.num_quantizers}.", param="levels")
        heard = wave if codec.channels == 1 else wave.expand(codec.channels, -1)
        with torch.no_grad():
            made = codec.encode(heard.reshape(1, codec.channels, -1), num_quantizers=levels)[0]
        return {"model": found.id, "sample_rate": rate, "codes": made.tolist(), "samples": wave.shape[-1]}

    return await worked(request, studio, encode)


@router.post("/v1/audio/codes/decode", response_class=Response, responses={**WAV, **declared(404, 429, 504)})
async def decode(asked: Codes, request: Request) -> Response:
    """The recording that codes stand for."""
    studio = studio_of(request)
    found = await run_in_threadpool(studio.models.find, asked.model or None, "codec")

    def sound() -> bytes:
        codec = studio.models.loaded(found)
        rate = int(codec.target_sample_hz)
        most = studio.settings.limits.audio_seconds
        check_at_most("codes", len(asked.codes) / codec.frame_rate, most + 1)
        table = _table(asked.codes, codec.num_quantizers, codec.rq_groups, codec.codebook_size)
        with torch.no_grad():
            wave = codec.decode_from_codebook_indices(table[None].to(codec.device))[0]
        wave = wave[:, : asked.samples]
        return studio.made(encoded(_mono(wave), "wav", rate), found.id, wave.shape[-1] / rate)

    return Response(await worked(request, studio, sound), media_type=MEDIA_TYPES["wav"])


def _table(rows: list[list[int]], levels: int, groups: int, size: int) -> torch.Tensor:
    """Codes [frames, levels x groups], all of which the codec knows."""

    def wrong() -> Iterator[str]:
        if len({len(row) for row in rows}) > 1:
            yield "every frame needs as many codes as the others"
        if not groups <= len(rows[0]) <= levels * groups:
            yield f"a frame has {len(rows[0])} codes, and this codec has from {groups} to {levels * groups}"
        if len(rows[0]) % groups:
            yield f"a frame has {len(rows[0])} codes, and this codec has {groups} for each level"
        if max(max(row, default=0) for row in rows) >= size:
            yield f"this codec knows the codes 0 to {size - 1}"

    for sentence in wrong():
        raise ApiError(400, f"codes: {sentence}.", code="invalid_codes", param="codes")
    return torch.tensor(rows)
