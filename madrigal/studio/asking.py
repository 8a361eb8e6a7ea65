"""What several requests say in the same words."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import File, Form, Request, UploadFile
from pydantic import AfterValidator, Field

from madrigal.studio.encoding import MEDIA_TYPES
from madrigal.studio.errors import ApiError
from madrigal.studio.serving import Studio
from madrigal.studio.streaming import while_connected

T = TypeVar("T")


def _plain(text: str) -> str:
    """No characters that steer machines; tabs and new lines are blanks."""
    if any(character < " " and character not in "\t\n\r" for character in text):
        raise ValueError("control characters are not taken")
    return text


Text = Annotated[str, AfterValidator(_plain)]
Seed = Annotated[int, Field(ge=0, lt=2**31, description="the same seed makes the same")]
FormSeed = Annotated[int, Form(ge=0, lt=2**31, description="the same seed makes the same")]
ModelName = Annotated[str | None, Form(max_length=300, description="a model's id; default: the first that fits")]
Recording = Annotated[UploadFile, File(description="a recording: wav, flac, ogg, mp3 or aiff")]
LONGEST_TEXT = 100_000
"""Of a text field in a form, whatever the limits say; those are told by their own sentence."""

BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
WAV: dict[int | str, dict[str, Any]] = {200: {"description": "The sound", "content": {"audio/wav": BINARY}}}
SOUND: dict[int | str, dict[str, Any]] = {
    200: {"description": "The sound", "content": dict.fromkeys(MEDIA_TYPES.values(), BINARY)}
}


async def worked(request: Request, studio: Studio, make: Callable[[], T]) -> T:
    """One thing, made in its turn while the client waits for it."""
    with studio.watching.work_seconds.time():
        return await while_connected(request, studio.line.once(make))


def check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ApiError(
            400,
            f"{name} has {len(text)} characters, and {most} are the most.",
            code=f"{name}_too_long",
            param=name,
        )


def check_at_most(name: str, value: float, most: float) -> None:
    if value > most:
        raise ApiError(400, f"{name} is {value:g}, and {most:g} is the most.", code="too_much", param=name)
