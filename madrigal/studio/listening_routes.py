"""Routes of listening tests."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from madrigal.studio.asking import BINARY, Text
from madrigal.studio.errors import declared
from madrigal.studio.listening import Kind
from madrigal.studio.runs import MEDIA
from madrigal.studio.serving import studio_of

router = APIRouter(prefix="/api/listening", tags=["listening"])


class TestRow(BaseModel):
    __test__ = False  # no test of pytest's

    id: str
    kind: Kind
    title: str
    created: float
    trials: int
    runs: list[str]
    answers: int
    listeners: int


class TestList(BaseModel):
    __test__ = False

    tests: list[TestRow]


class NewTest(BaseModel):
    """Runs whose newest samples are to be compared."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    title: Text = Field(min_length=1, max_length=200)
    runs: list[str] = Field(min_length=1, max_length=100)


class Stimulus(BaseModel):
    token: str
    url: str


class Trial(BaseModel):
    id: str
    item: str
    reference: Stimulus | None
    stimuli: list[Stimulus]


class TakenTest(BaseModel):
    id: str
    kind: Kind
    title: str
    trials: list[Trial]


class Answer(BaseModel):
    """A choice in an A/B trial, or a score for every stimulus of a MUSHRA trial."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    listener: Text = Field(min_length=1, max_length=100)
    trial: str = Field(max_length=20)
    choice: Literal["a", "b", "none"] | None = None
    scores: dict[str, Annotated[float, Field(ge=0, le=100)]] | None = Field(None, max_length=50)


class Taken(BaseModel):
    ok: bool


class Pair(BaseModel):
    left: str
    right: str
    left_wins: int
    right_wins: int
    none: int
    preference: float | None
    interval: list[float] | None


class Score(BaseModel):
    run: str
    mean: float
    interval: list[float] | None
    n: int


class Results(BaseModel):
    kind: Kind
    title: str
    listeners: int
    answers: int
    pairs: list[Pair]
    scores: list[Score]
    file: str


@router.get("", response_model=TestList, responses=declared())
def tests(request: Request) -> Any:
    """All tests, the newest first."""
    return {"tests": studio_of(request).listening.rows()}


@router.post("", status_code=201, response_model=TestRow, responses=declared(404, 409))
def create(asked: NewTest, request: Request) -> Any:
    """Make a test from the newest samples that these runs have in common."""
    return studio_of(request).listening.create(asked.kind, asked.title, asked.runs)


@router.get("/{test_id}", response_model=TakenTest, responses=declared(404))
def test(test_id: str, request: Request) -> Any:
    """A test as its listeners see it."""
    return studio_of(request).listening.taken(test_id)


@router.delete("/{test_id}", status_code=204, response_class=Response, responses=declared(404))
def remove(test_id: str, request: Request) -> Response:
    """Remove a test with all its answers."""
    studio_of(request).listening.remove(test_id)
    return Response(status_code=204)


@router.get(
    "/{test_id}/stimuli/{token}",
    response_class=Response,
    responses={200: {"content": {"audio/wav": BINARY, "audio/flac": BINARY}}, **declared(404)},
)
def stimulus(test_id: str, token: str, request: Request) -> Response:
    """One sound of it."""
    file = studio_of(request).listening.stimulus(test_id, token)
    return FileResponse(file, media_type=MEDIA[file.suffix])


@router.post("/{test_id}/answers", status_code=201, response_model=Taken, responses=declared(404, 409))
def answers(test_id: str, asked: Answer, request: Request) -> Any:
    """Answer a trial."""
    studio_of(request).listening.answer(test_id, asked.listener, asked.trial, asked.choice, asked.scores)
    return {"ok": True}


@router.get("/{test_id}/results", response_model=Results, responses=declared(404))
def results(test_id: str, request: Request) -> Any:
    """What came out so far."""
    return studio_of(request).listening.results(test_id)


@router.get(
    "/{test_id}/results.jsonl",
    response_class=Response,
    responses={200: {"content": {"application/jsonl": {}}}, **declared(404)},
)
def results_file(test_id: str, request: Request) -> Response:
    """Every answer, one a line."""
    return Response(studio_of(request).listening.answers_file(test_id), media_type="application/jsonl")
