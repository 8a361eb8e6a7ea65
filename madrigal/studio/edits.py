"""Recordings with other words in them, or with a part made anew; and when each word of one is said."""

import io
from typing import Annotated, Any
from urllib.parse import quote

import soundfile
from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from madrigal.studio.asking import LONGEST_TEXT, WAV, FormSeed, ModelName, Recording, check_length, worked
from madrigal.studio.errors import ApiError, declared
from madrigal.studio.serving import Studio, studio_of
from madrigal.studio.uploads import content_of, sound_of
from madrigal.studio.word_times import word_times

router = APIRouter(tags=["sound"])
Words = Annotated[str | None, Form(max_length=LONGEST_TEXT)]
LEAST_SECONDS = 0.2
"""Of a recording in which words are looked for: an aligner hears frames, and a few samples are none."""


@router.post("/v1/audio/edits", response_class=Response, responses={**WAV, **declared(404, 429, 504)})
async def edits(
    request: Request,
    file: Recording,
    replace_old: Words = None,
    replace_new: Words = None,
    fill: Annotated[str | None, Form(max_length=1000, description="seconds to make anew: 1.2-1.9")] = None,
    text: Annotated[str | None, Form(max_length=LONGEST_TEXT, description="what is said in the recording")] = None,
    seed: FormSeed = 0,
    model: ModelName = None,
) -> Response:
    """Replace words, or make a span anew; all other samples stay as they are."""
    studio = studio_of(request)
    if (replace_old is None) == (fill is None) or (replace_old is None) != (replace_new is None):
        raise ApiError(
            400,
            "Give replace_old and replace_new, or fill.",
            code="contradiction",
            param="fill" if replace_old is None else "replace_new",
        )
    for name, value in {"text": text, "replace_old": replace_old, "replace_new": replace_new}.items():
        check_length(name, value or "", studio.settings.limits.text_characters)
    found = await run_in_threadpool(studio.models.find, model or None, "speech")
    data = await content_of(file)

    def edit() -> tuple[bytes, str, str]:
        from madrigal.voicebox.editing import Editor
        from madrigal.voicebox.mending import spans_of

        sound = sound_of(data, most_seconds=studio.settings.limits.audio_seconds)
        editor = Editor(studio.models.loaded(found), seed=seed)
        said = (text or "").strip() or None
        if fill is not None:
            done = editor.fill(sound, spans_of(fill, "fill"), said)
        else:
            said = said or _recognised(studio, sound)
            done = editor.replace(sound, said, str(replace_old), str(replace_new))
        spans = ",".join(f"{start:.3f}-{stop:.3f}" for start, stop in done.new)
        made = sum(stop - start for start, stop in done.new)
        return studio.made(_wav(done.sound), found.id, made), done.text or "", spans

    wav, new_text, spans = await worked(request, studio, edit)
    headers = {"X-Madrigal-Text": quote(new_text), "X-Madrigal-Span": spans}
    return Response(wav, media_type="audio/wav", headers=headers)


class Word(BaseModel):
    word: str
    start: float
    end: float


class WordsAnswer(BaseModel):
    text: str
    seconds: float
    words: list[Word]


@router.post("/v1/audio/words", response_model=WordsAnswer, responses=declared(404, 429, 504))
async def words(
    request: Request,
    file: Recording,
    text: Annotated[str | None, Form(max_length=LONGEST_TEXT, description="what is said in the recording")] = None,
    model: ModelName = None,
) -> Any:
    """When each word is said, in seconds. Without a text a recogniser listens, if one is installed."""
    studio = studio_of(request)
    check_length("text", text or "", studio.settings.limits.text_characters)
    found = await run_in_threadpool(studio.models.find, model or None, "speech")
    data = await content_of(file)

    def find() -> dict[str, Any]:
        speaker = studio.models.loaded(found)
        sound = sound_of(data, most_seconds=studio.settings.limits.audio_seconds, least_seconds=LEAST_SECONDS)
        said = " ".join((text or "").split()) or _recognised(studio, sound)
        return {"text": said, "seconds": round(sound.seconds, 3), "words": word_times(speaker, sound, said)}

    return await worked(request, studio, find)


def _recognised(studio: Studio, sound: Any) -> str:
    recogniser = studio.recogniser()
    if recogniser is None:
        raise ApiError(
            400, "Nobody knows what is said: give the text of the recording.", code="missing_parameter", param="text"
        )
    heard = str(recogniser.transcribe(sound.wave().mean(0).numpy(), sound.rate)).strip()
    if not heard:
        raise ApiError(400, "No words were heard: give the text of the recording.", code="no_words", param="text")
    return heard


def _wav(sound: Any) -> bytes:
    from pathlib import Path

    out = io.BytesIO()
    soundfile.write(out, sound.data, sound.rate, subtype=sound.check_target(Path("edited.wav")), format="WAV")
    return out.getvalue()
