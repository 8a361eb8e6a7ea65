"""What a studio is told when it starts: its folder, its models, its limits, who may come in."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

MEGABYTE = 1_000_000


class Limits(BaseModel):
    """What one request, and all of them together, may ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes: int = Field(25 * MEGABYTE, ge=1024, description="bytes of a request's body")
    json_bytes: int = Field(256_000, ge=1024, description="bytes of a body that is no upload")
    codes_bytes: int = Field(8 * MEGABYTE, ge=1024, description="bytes of a recording in codes")
    text_characters: int = Field(4096, ge=1, description="characters of a text to say")
    prompt_characters: int = Field(2000, ge=1, description="characters of the description of a picture or of music")
    prompt_seconds: float = Field(
        30.0, gt=0, description="seconds of a recording to take a voice from, or to go on from"
    )
    audio_seconds: float = Field(120.0, gt=0, description="seconds of a recording to edit or to encode")
    made_seconds: float = Field(60.0, gt=0, description="seconds of music, or of a continuation, to make")
    spoken_seconds: float = Field(600.0, gt=0, description="seconds of speech to make of a text")
    pictures: int = Field(16, ge=1, description="pictures of one request")
    voices: int = Field(1000, ge=0, description="uploaded voices that are kept")
    waiting: int = Field(32, ge=0, description="requests that wait for their turn; more are told to come back")
    workers: int = Field(1, ge=1, description="requests that are worked on at once")
    requests: int = Field(256, ge=1, description="requests that are open at once, of any kind")
    timeout_seconds: float = Field(300.0, gt=0, description="from a request's arrival to the end of its work")
    stall_seconds: float = Field(30.0, gt=0, description="a client that takes no bytes for so long is left")
    grace_seconds: float = Field(30.0, ge=0, description="what is going on may take so long when the server stops")
    models: int = Field(4, ge=1, description="models that are kept in memory")


class StudioSettings(BaseModel):
    """All that `create_app` needs to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path = Field(Path("runs"), description="the folder that holds the runs")
    voice_runs: tuple[Path, ...] = Field((), description="runs or exported folders of voices, the default first")
    api_key: str | None = Field(None, min_length=8, repr=False, description="wanted of every request, if set")
    names: tuple[str, ...] = Field(
        (), description="host names that the studio is reached by, beside loopback and numbers"
    )
    control: bool = Field(False, description="whether runs may be started, stopped and resumed")
    data_roots: tuple[Path, ...] = Field((), description="folders that data of a training may lie in")
    shipped: bool = Field(True, description="whether the voice and the codec that come with madrigal are served")
    warm: bool = Field(True, description="load the default voice and say a word before the first request")
    device: str = Field("cpu", description="where models run")
    limits: Limits = Field(default_factory=Limits)
