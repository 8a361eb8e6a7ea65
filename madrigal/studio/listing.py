"""What there is: models, voices, and what the page wants to know of the studio."""

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from madrigal import __version__
from madrigal.studio.errors import declared
from madrigal.studio.serving import Studio, studio_of

router = APIRouter()


class ModelRow(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelRow]


class VoiceRow(BaseModel):
    id: str
    name: str
    model: str
    default: bool
    uploaded: bool


class VoiceList(BaseModel):
    voices: list[VoiceRow]


class StudioRow(BaseModel):
    version: str
    control: bool
    key_required: bool
    limits: dict[str, float]
    models: list[ModelRow]


def model_rows(studio: Studio) -> list[dict[str, Any]]:
    common = {"object": "model", "owned_by": "madrigal"}
    return [{"id": m.id, "created": m.created, "kind": m.kind, **common} for m in studio.models.listed()]


@router.get("/v1/models", response_model=ModelList, responses=declared(), tags=["OpenAI"])
def models(request: Request) -> Any:
    """The models that can be asked for."""
    return {"object": "list", "data": model_rows(studio_of(request))}


@router.get("/v1/models/{model_id:path}", response_model=ModelRow, responses=declared(404), tags=["OpenAI"])
def model(model_id: str, request: Request) -> Any:
    """One of them."""
    from madrigal.studio.errors import missing

    for row in model_rows(studio_of(request)):
        if row["id"] == model_id:
            return row
    raise missing("model", model_id, "model_not_found")


@router.get("/v1/audio/voices", response_model=VoiceList, responses=declared(), tags=["voices"])
def voices(request: Request) -> Any:
    """The voices of all models that speak."""
    studio = studio_of(request)
    speakers = [m for m in studio.models.listed() if m.kind == "speech"]
    return {"voices": [voice.row() for m in speakers for voice in studio.voices.listed(m)]}


@router.get("/api/studio", response_model=StudioRow, responses=declared(), tags=["studio"])
def about(request: Request) -> Any:
    """What the page wants to know."""
    studio = studio_of(request)
    return {
        "version": __version__,
        "control": studio.settings.control,
        "key_required": studio.settings.api_key is not None,
        "limits": studio.settings.limits.model_dump(),
        "models": model_rows(studio),
    }
