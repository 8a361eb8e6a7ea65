"""`POST /v1/images/…`: pictures from texts, and a part of a picture made anew."""

import base64
import io
import re
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from madrigal.studio.asking import LONGEST_TEXT, FormSeed, ModelName, Seed, Text, check_at_most, check_length, worked
from madrigal.studio.errors import ApiError, declared, shown
from madrigal.studio.serving import studio_of
from madrigal.studio.uploads import content_of, picture_of
from madrigal.studio.work import check_wanted

router = APIRouter(tags=["OpenAI"])
MOST_AREA = 16
"""A picture may have so many times the pixels that a run was trained with."""


class PictureRequest(BaseModel):
    """What OpenAI's clients send, and what Muse can be told beside."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    prompt: Text = Field(min_length=1)
    model: str | None = None
    n: int | None = Field(1, ge=1, le=64)
    size: str | None = Field("auto", max_length=20, description="auto, or WIDTHxHEIGHT")
    response_format: Literal["b64_json", "url"] | None = "b64_json"
    seed: Seed = 0
    steps: int | None = Field(None, ge=1, le=256)
    cond_scale: float | None = Field(None, ge=0, le=50)
    negative: Text | None = Field(None, description="what should not be seen")
    quality: str | None = Field(None, description="accepted, and without effect")
    style: str | None = Field(None, description="accepted, and without effect")
    background: str | None = Field(None, description="accepted, and without effect")
    moderation: str | None = Field(None, description="accepted, and without effect")
    user: str | None = Field(None, description="accepted, and without effect")


class PictureRow(BaseModel):
    b64_json: str


class PictureAnswer(BaseModel):
    created: int
    data: list[PictureRow]


@router.post("/v1/images/generations", response_model=PictureAnswer, responses=declared(404, 429, 504))
async def generations(asked: PictureRequest, request: Request) -> Any:
    """Pictures of a text."""
    studio = studio_of(request)
    limits = studio.settings.limits
    if asked.response_format == "url":
        raise ApiError(
            400,
            "Pictures are sent, not kept: ask for response_format b64_json.",
            code="no_urls",
            param="response_format",
        )
    for name in ("prompt", "negative"):
        check_length(name, getattr(asked, name) or "", limits.prompt_characters)
    count = asked.n or 1
    check_at_most("n", count, limits.pictures)
    wanted = _size(asked.size)
    found = studio.models.find(asked.model or None, "pictures")

    def paint() -> list[str]:
        muse = studio.models.loaded(found)
        _check_size(muse, wanted)
        told = _condition(muse, asked.prompt, asked.negative)
        options = {"timesteps": asked.steps, "cond_scale": asked.cond_scale}
        options = {name: value for name, value in options.items() if value is not None}
        drawn: list[str] = []
        for number in range(count):
            check_wanted()
            drawn += _sent(muse.generate(size=wanted, seed=asked.seed + number, **told, **options))
        return drawn

    return _answer(await worked(request, studio, paint))


@router.post("/v1/images/edits", response_model=PictureAnswer, responses=declared(404, 429, 504))
async def edits(
    request: Request,
    image: Annotated[UploadFile, File(description="a picture: png, jpeg or webp")],
    mask: Annotated[UploadFile, File(description="of the same size; what is white is made anew")],
    prompt: Annotated[str, Form(max_length=LONGEST_TEXT)],
    model: ModelName = None,
    seed: FormSeed = 0,
) -> Any:
    """Make a part of a picture anew; the rest keeps its pixels."""
    studio = studio_of(request)
    check_length("prompt", prompt, studio.settings.limits.prompt_characters)
    found = studio.models.find(model or None, "pictures")
    picture, hidden = await content_of(image), await content_of(mask)

    def paint() -> list[str]:
        from madrigal.muse.editing import inside
        from madrigal.muse.pictures import from_pil

        opened, marked = picture_of(picture), picture_of(hidden)
        if opened.size != marked.size:
            raise ApiError(400, "The mask has another size than the picture.", code="invalid_mask", param="mask")
        muse = studio.models.loaded(found)
        high, wide = muse.last.config.image_size
        if not _fits(muse, opened.height, opened.width):
            opened, marked = (one.resize((wide, high), Image.Resampling.BICUBIC) for one in (opened, marked))
        change = inside(from_pil(opened)[None], from_pil(marked)[None, 0] > 0.5)
        if not bool(change.mask.any()):
            raise ApiError(400, "Nothing of the mask is white.", code="invalid_mask", param="mask")
        made = muse.generate(edit=change, seed=seed, **_condition(muse, prompt, None))
        return _sent(change.laid(made))

    return _answer(await worked(request, studio, paint))


def _answer(pictures: list[str]) -> dict[str, Any]:
    return {"created": int(time.time()), "data": [{"b64_json": picture} for picture in pictures]}


def _sent(images: Any) -> list[str]:
    from madrigal.muse.pictures import to_pil

    sent = []
    for image in to_pil(images):
        out = io.BytesIO()
        image.save(out, "PNG")
        sent.append(base64.b64encode(out.getvalue()).decode())
    return sent


def _condition(muse: Any, prompt: str, negative: str | None) -> dict[str, Any]:
    """What one picture is made of: a text, or a class of that name, as the run has learned it."""
    config = muse.base.config
    net = config.transformer
    if net.num_classes is not None:
        names = list(config.class_names or map(str, range(net.num_classes)))
        if prompt not in names:
            raise ApiError(
                400,
                f"The prompt is no class of this model: {', '.join(names[:20])}.",
                code="unknown_class",
                param="prompt",
            )
        return {"classes": [names.index(prompt)]}
    if not net.reads_text or net.text_encoder == "embeds":
        raise ApiError(400, "This model takes no texts.", code="no_text", param="model")
    return {"texts": [prompt], **({"negative_texts": [negative]} if negative else {})}


def _size(text: str | None) -> tuple[int, int] | None:
    """`WIDTHxHEIGHT` as (height, width)."""
    if text is None or text == "auto":
        return None
    sides = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if sides is None:
        raise ApiError(400, f"size is {shown(text)}; write auto or WIDTHxHEIGHT.", code="invalid_size", param="size")
    return int(sides[2]), int(sides[1])


def _fits(muse: Any, height: int, width: int) -> bool:
    high, wide = muse.last.config.image_size
    return not (height % muse.cell or width % muse.cell) and height * width <= MOST_AREA * high * wide


def _check_size(muse: Any, size: tuple[int, int] | None) -> None:
    if size is not None and not _fits(muse, *size):
        high, wide = muse.last.config.image_size
        raise ApiError(
            400,
            f"size is {size[1]}x{size[0]}; this model makes {wide}x{high}, or other multiples of {muse.cell} pixels.",
            code="invalid_size",
            param="size",
        )
