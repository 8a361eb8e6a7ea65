"""`POST /v1/images/…`: pictures from texts, and a part of a picture made anew."""

import base64
import io
import re
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, UploadFile
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from madrigal.studio.asking import LONGEST_TEXT, FormSeed, ModelName, Seed, Text, check_at_most, check_length, worked
from madrigal.studio.errors import ApiError, declared, shown
from madrigal.studio.serving import studio_of
from madrigal.studio.uploads import content_of, mask_of, picture_of, transparency_of
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
    output_format: Literal["png"] | None = None
    output_compression: int | None = Field(None, description="accepted, and without effect")
    stream: Literal[False] | None = None


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
    found = await run_in_threadpool(studio.models.find, asked.model or None, "pictures")

    def paint() -> list[str]:
        muse = studio.models.loaded(found)
        _check_size(muse, wanted)
        told = _condition(muse, asked.prompt, asked.negative) | _options(asked.steps, asked.cond_scale)
        drawn: list[str] = []
        for number in range(count):
            check_wanted()
            drawn += _sent(muse.generate(size=wanted, seed=asked.seed + number, **told))
        return drawn

    return _answer(await worked(request, studio, paint))


@router.post("/v1/images/edits", response_model=PictureAnswer, responses=declared(404, 429, 504))
async def edits(
    request: Request,
    image: Annotated[UploadFile, File(description="a picture: png, jpeg or webp")],
    prompt: Annotated[Text, Form(min_length=1, max_length=LONGEST_TEXT)],
    mask: Annotated[
        UploadFile | None,
        File(description="what is transparent, or white where nothing is, is made anew; default: as the picture's own"),
    ] = None,
    model: ModelName = None,
    n: Annotated[int, Form(ge=1, le=64, description="how many, of one seed after the other")] = 1,
    size: Annotated[str, Form(max_length=20, description="auto (the picture's own), or WIDTHxHEIGHT")] = "auto",
    response_format: Annotated[Literal["b64_json"], Form(description="pictures are sent, not kept")] = "b64_json",
    output_format: Annotated[Literal["png"], Form()] = "png",
    seed: FormSeed = 0,
    steps: Annotated[int | None, Form(ge=1, le=256)] = None,
    cond_scale: Annotated[float | None, Form(ge=0, le=50, allow_inf_nan=False)] = None,
    negative: Annotated[Text | None, Form(max_length=LONGEST_TEXT, description="what should not be seen")] = None,
) -> Any:
    """Make a part of a picture anew; the rest keeps its pixels."""
    studio = studio_of(request)
    limits = studio.settings.limits
    for name, words in {"prompt": prompt, "negative": negative or ""}.items():
        check_length(name, words, limits.prompt_characters)
    check_at_most("n", n, limits.pictures)
    wanted = _size(size)
    found = await run_in_threadpool(studio.models.find, model or None, "pictures")
    picture = await content_of(image)
    hidden = None if mask is None else await content_of(mask)

    def paint() -> list[str]:
        from madrigal.muse.editing import inside
        from madrigal.muse.pictures import from_pil

        opened = picture_of(picture)
        marked = transparency_of(picture) if hidden is None else mask_of(hidden)
        if marked is None:
            raise ApiError(
                400,
                "Nothing says what to make anew: send a mask, or a picture that is transparent there.",
                code="invalid_mask",
                param="mask",
            )
        if opened.size != marked.size:
            raise ApiError(400, "The mask has another size than the picture.", code="invalid_mask", param="mask")
        muse = studio.models.loaded(found)
        _check_size(muse, wanted)
        own = (opened.height, opened.width)
        high, wide = wanted or (own if _fits(muse, *own) else muse.last.config.image_size)
        if own != (high, wide):
            opened, marked = (one.resize((wide, high), Image.Resampling.BICUBIC) for one in (opened, marked))
        change = inside(from_pil(opened)[None], from_pil(marked)[None, 0] > 0.5)
        if not bool(change.mask.any()):
            raise ApiError(400, "The mask marks nothing.", code="invalid_mask", param="mask")
        told = _condition(muse, prompt, negative) | _options(steps, cond_scale)
        drawn: list[str] = []
        for number in range(n):
            check_wanted()
            drawn += _sent(change.laid(muse.generate(edit=change, seed=seed + number, **told)))
        return drawn

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


def _options(steps: int | None, cond_scale: float | None) -> dict[str, Any]:
    """How it is drawn, where the request says so."""
    said = {"timesteps": steps, "cond_scale": cond_scale}
    return {name: value for name, value in said.items() if value is not None}


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
