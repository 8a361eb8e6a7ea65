"""Voices that are added by a few seconds of somebody's speech, and removed again."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from madrigal.studio.asking import LONGEST_TEXT, ModelName, Recording, check_length, worked
from madrigal.studio.errors import declared
from madrigal.studio.listing import LEAST_SECONDS, VoiceList, VoiceRow
from madrigal.studio.serving import studio_of
from madrigal.studio.uploads import content_of, wave_of

router = APIRouter(tags=["voices"])


@router.get("/v1/audio/voices", response_model=VoiceList, responses=declared())
def voices(request: Request) -> Any:
    """The voices of all models that speak."""
    studio = studio_of(request)
    speakers = [m for m in studio.models.listed() if m.kind == "speech"]
    return {"voices": [voice.row() for m in speakers for voice in studio.voices.listed(m)]}


@router.post("/v1/audio/voices", status_code=201, response_model=VoiceRow, responses=declared(404, 409, 429, 504))
async def add_voice(
    request: Request,
    file: Recording,
    name: Annotated[str, Form(description="small letters, digits and hyphens")],
    text: Annotated[str | None, Form(max_length=LONGEST_TEXT, description="what is said in the recording")] = None,
    model: ModelName = None,
) -> Any:
    """Add a voice from a recording of 1 to 30 seconds; with its text it is heard better."""
    studio = studio_of(request)
    found = await run_in_threadpool(studio.models.find, model or None, "speech")
    await run_in_threadpool(studio.voices.check_new, found, name)
    said = text.strip() or None if text else None
    check_length("text", said or "", studio.settings.limits.text_characters)
    data = await content_of(file)

    def hear() -> Any:
        speaker = studio.models.loaded(found)
        most = studio.settings.limits.prompt_seconds
        wave = wave_of(data, speaker.sample_rate, most_seconds=most, least_seconds=LEAST_SECONDS)
        return studio.voices.add(found, name, speaker.voice(wave, speaker.sample_rate, said)).row()

    return await worked(request, studio, hear)


@router.delete("/v1/audio/voices/{voice_id}", status_code=204, response_class=Response, responses=declared(404, 409))
def remove_voice(voice_id: str, request: Request, model: str | None = None) -> Response:
    """Remove a voice that was uploaded; voices that a model brings stay."""
    studio = studio_of(request)
    studio.voices.remove(studio.models.find(model, "speech"), voice_id)
    return Response(status_code=204)
