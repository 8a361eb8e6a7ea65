"""What there is: models, voices, and what the page wants to know of the studio."""

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from madrigal import __version__
from madrigal.studio.encoding import MEDIA_TYPES
from madrigal.studio.errors import declared, missing
from madrigal.studio.serving import Studio, studio_of

LEAST_SECONDS = 1.0
"""Of a recording to take a voice from."""

router = APIRouter()


class ModelRow(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: str
    defaults: dict[str, float] = {}
    distilled: bool = Field(False, description="steps and guidance are built in: requests leave them out")


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
    limits: dict[str, float | list[float]]
    formats: list[str]
    models: list[ModelRow]


def model_rows(studio: Studio) -> list[dict[str, Any]]:
    common = {"object": "model", "owned_by": "madrigal"}
    found = studio.models.listed()
    return [
        {
            "id": model.id,
            "created": model.created,
            "kind": model.kind,
            "defaults": model.defaults(),
            "distilled": model.is_distilled,
            **common,
        }
        for model in found
    ]


def _limits(studio: Studio) -> dict[str, Any]:
    limits = studio.settings.limits
    return {
        "text_chars": limits.text_characters,
        "prompt_chars": limits.prompt_characters,
        "prompt_seconds": [LEAST_SECONDS, limits.prompt_seconds],
        "audio_seconds": limits.audio_seconds,
        "music_seconds": limits.made_seconds,
        "pictures": limits.pictures,
        "body_bytes": limits.body_bytes,
        "waiting": limits.waiting,
        "timeout_seconds": limits.timeout_seconds,
    }


@router.get("/v1/models", response_model=ModelList, responses=declared(), tags=["OpenAI"])
def models(request: Request) -> Any:
    """The models that can be asked for."""
    return {"object": "list", "data": model_rows(studio_of(request))}


@router.get("/v1/models/{model_id:path}", response_model=ModelRow, responses=declared(404), tags=["OpenAI"])
def model(model_id: str, request: Request) -> Any:
    """One of them."""
    for row in model_rows(studio_of(request)):
        if row["id"] == model_id:
            return row
    raise missing("model", model_id, "model_not_found")


@router.get("/api/studio", response_model=StudioRow, responses=declared(), tags=["studio"])
def about(request: Request) -> Any:
    """What the page wants to know."""
    studio = studio_of(request)
    return {
        "version": __version__,
        "control": studio.settings.control,
        "key_required": studio.settings.api_key is not None,
        "limits": _limits(studio),
        "formats": list(MEDIA_TYPES),
        "models": model_rows(studio),
    }
