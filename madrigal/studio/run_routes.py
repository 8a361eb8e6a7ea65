"""Routes of runs: the table, curves, samples, differences."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from madrigal.engine.recipe import recipe_names
from madrigal.studio.asking import BINARY
from madrigal.studio.errors import ApiError, declared
from madrigal.studio.runs import MEDIA
from madrigal.studio.serving import studio_of
from madrigal.studio.spectrogram import spectrogram

router = APIRouter(tags=["runs"])


class Figure(BaseModel):
    name: str
    value: float


class RunRow(BaseModel):
    id: str
    system: str | None
    recipe: str | None
    state: Literal["training", "stopped", "finished", "unknown"]
    step: int
    total_steps: int | None
    loss: Figure | None
    updated: float
    size_bytes: int
    parent: str | None
    has_samples: bool
    can_resume: bool
    can_stop: bool
    controllable: bool


class RunList(BaseModel):
    runs: list[RunRow]


class Checkpoint(BaseModel):
    step: int
    size_bytes: int


class RunDetail(RunRow):
    recipe_text: str
    environment: dict[str, Any]
    checkpoints: list[Checkpoint]
    metrics: list[str]


class Series(BaseModel):
    series: dict[str, list[tuple[int, float]]]
    last_step: int


class SampleItem(BaseModel):
    name: str
    kind: Literal["audio", "image", "text"]
    url: str
    group: str
    role: str


class SampleStep(BaseModel):
    step: int
    items: list[SampleItem]


class SampleList(BaseModel):
    steps: list[SampleStep]


class DiffRow(BaseModel):
    key: str
    left: str
    right: str


class Diff(BaseModel):
    rows: list[DiffRow]


class RecipeList(BaseModel):
    recipes: list[str]


class NewRun(BaseModel):
    """A recipe that comes with madrigal, a name for the run, and what to change in the recipe."""

    model_config = ConfigDict(extra="forbid")

    recipe: str = Field(max_length=200)
    name: str = Field(max_length=200)
    overrides: list[str] = Field([], max_length=100)


@router.get("/api/recipes", response_model=RecipeList, responses=declared())
def recipes() -> Any:
    """The recipes that a run can be started from."""
    return {"recipes": recipe_names()}


@router.post("/api/runs", status_code=201, response_model=RunDetail, responses=declared(404, 409))
def start(asked: NewRun, request: Request) -> Any:
    """Start a training, as a process of its own."""
    return studio_of(request).control.start(asked.recipe, asked.name, asked.overrides)


@router.post("/api/runs/{run_id:path}/stop", response_model=RunDetail, responses=declared(404, 409))
def stop(run_id: str, request: Request) -> Any:
    """Ask a training to save and leave."""
    return studio_of(request).control.stop(run_id)


@router.post("/api/runs/{run_id:path}/resume", response_model=RunDetail, responses=declared(404, 409))
def resume(run_id: str, request: Request) -> Any:
    """Go on with a run that was stopped."""
    return studio_of(request).control.resume(run_id)


@router.get("/api/runs", response_model=RunList, responses=declared())
def runs(request: Request) -> Any:
    """All runs of the folder."""
    return {"runs": studio_of(request).runs.rows()}


@router.get("/api/diff", response_model=Diff, responses=declared(404))
def diff(left: str, right: str, request: Request) -> Any:
    """The keys in which the recipes of two runs differ."""
    return {"rows": studio_of(request).runs.diff(left, right)}


@router.get("/api/runs/{run_id:path}/metrics", response_model=Series, responses=declared(404))
def metrics(
    run_id: str,
    request: Request,
    names: Annotated[str | None, Query(max_length=10_000)] = None,
    since: int = -1,
    points: Annotated[int, Query(ge=1, le=100_000)] = 2000,
) -> Any:
    """Curves of a run after the step `since`, each thinned to `points`; all, or those in `names` (a,b)."""
    return studio_of(request).runs.series(run_id, names.split(",") if names else None, since, points)


@router.get("/api/runs/{run_id:path}/samples", response_model=SampleList, responses=declared(404))
def samples(run_id: str, request: Request) -> Any:
    """What can be heard, seen or read, newest first."""
    return {"steps": studio_of(request).runs.samples(run_id)}


@router.get(
    "/api/runs/{run_id:path}/samples/{step}/{name}",
    response_class=Response,
    responses={200: {"content": dict.fromkeys(MEDIA.values(), BINARY)}, **declared(404)},
)
def sample(run_id: str, step: int, name: str, request: Request) -> Any:
    """One of these files."""
    file = studio_of(request).runs.sample(run_id, step, name)
    return FileResponse(file, media_type=MEDIA[file.suffix], headers={"Cache-Control": "private, max-age=3600"})


@router.get(
    "/api/runs/{run_id:path}/spectrogram.png",
    response_class=Response,
    responses={200: {"content": {"image/png": BINARY}}, **declared(404)},
)
def picture_of_sound(run_id: str, step: int, name: str, request: Request) -> Response:
    """The spectrogram of a sample."""
    file = studio_of(request).runs.sample(run_id, step, name)
    if file.suffix not in (".wav", ".flac"):
        raise ApiError(400, "A spectrogram is of a sound.", code="no_sound", param="name")
    try:
        picture = spectrogram(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise ApiError(404, "The sample cannot be read.", code="sample_not_found") from error
    return Response(picture, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


@router.get("/api/runs/{run_id:path}", response_model=RunDetail, responses=declared(404))
def run(run_id: str, request: Request) -> Any:
    """One run, with its recipe, environment and checkpoints."""
    return studio_of(request).runs.row(run_id)
