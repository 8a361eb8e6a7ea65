"""A voice that needs no network, and a folder of runs that nobody had to train."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import soundfile
import torch
import yaml
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from torch import Tensor

from madrigal.errors import UserError
from madrigal.studio import app as studio_app
from madrigal.studio.models import LOADERS
from madrigal.studio.settings import StudioSettings
from madrigal.voicebox.voice import Voice

RATE = 24_000
WORD = 2_400
"""Samples of a word, and of a piece."""
FINGERPRINT = "stand-in"
KEY = "a-key-for-tests"
MARK = "stand-in"
"""A file in folders that only look like models: something small is loaded in their place."""
OTHERWISE = "x-studio-of"
"""A header of requests to a replica: settings of the studio that is to answer, where they are not the replica's."""


class StandInVoice:
    """Says every word of a text as a tone of a tenth of a second; `slow` seconds are taken for each."""

    sample_rate, channels = RATE, 1

    def __init__(self, slow: float = 0.0) -> None:
        self.slow, self.said, self.closed = slow, 0, threading.Event()
        self.asked: list[dict[str, Any]] = []

    def stream(
        self, text: str, *, voice: Voice | None = None, seed: int = 0, rate: float | None = None, **options: Any
    ) -> Iterator[Tensor]:
        if not any(character.isalnum() for character in text):
            raise UserError("There is nothing to say in the text; write words or numbers.")
        self.asked.append({"text": text, "voice": voice, "seed": seed, "rate": rate, **options})
        self.closed.clear()
        try:
            for number, _ in enumerate(text.split()):
                time.sleep(self.slow)
                self.said += 1
                time_line = torch.arange(round(WORD / (rate or 1.0)))
                yield 0.5 * torch.sin(time_line * (0.05 + 0.002 * ((number + seed) % 20)))
        finally:
            self.closed.set()

    def voice(self, wave: Tensor, rate: int, text: str | None = None) -> Voice:
        assert rate == RATE
        return Voice(wave[: 10 * 80].reshape(10, 80), FINGERPRINT, about={"text": text or ""})


class Composer:
    """What the routes need of a MusicLM and of an AudioLM: a sound as long as it is asked for."""

    sample_rate = 16_000
    codec = SimpleNamespace(target_sample_hz=16_000)

    def draw(self, text: str, n: int, *, seconds: float, **_: Any) -> list[Any]:
        return [SimpleNamespace(waves=[torch.zeros(round(seconds * 16_000))] * n, scores=[0.5] * n)]

    def __call__(self, *, prime_wave: Tensor, seconds: float, **_: Any) -> Tensor:
        return torch.cat((prime_wave, torch.zeros(round(seconds * 16_000))))[None]


def small_models(voice: StandInVoice) -> dict[Any, Callable[[Path, str], Any]]:
    """How models of each kind are loaded here: what is really there as it is, and something small for a stand-in."""

    def codec() -> Any:
        from small_codecs import small_codec

        torch.manual_seed(0)  # the same in every process
        return small_codec(16, 2)

    def muse() -> Any:
        from small_muse import small_muse

        return small_muse()

    small = {"speech": lambda: voice, "codec": codec, "pictures": muse, "music": Composer, "continuation": Composer}

    def loader(kind: Any) -> Callable[[Path, str], Any]:
        return lambda folder, device: small[kind]() if (folder / MARK).exists() else LOADERS[kind](folder, device)

    return {kind: loader(kind) for kind in small}


def create_app(settings: StudioSettings | None = None) -> FastAPI:
    """The studio with the stand-in for every voice; STAND_IN_SECONDS are taken for each of its words."""
    voice = StandInVoice(float(os.environ.get("STAND_IN_SECONDS", "0")))
    return studio_app.create_app(settings, loaders={"speech": lambda *_: voice})


class Otherwise:
    """Around the studio of a replica: a request whose header says so is answered by one of other settings."""

    def __init__(self, app: ASGIApp, make: Callable[[str], ASGIApp]) -> None:
        self._app, self._make = app, functools.cache(make)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = Headers(scope=scope).get(OTHERWISE) if scope["type"] == "http" else None
        await (self._app if told is None else self._make(told))(scope, receive, send)


def create_replica(settings: StudioSettings) -> FastAPI:
    """What a replica serves: the studio with small models and a voice that takes its time, and who it is."""

    def make(told: str) -> FastAPI:
        changes = json.loads(told)
        limits = {**settings.limits.model_dump(), **changes.pop("limits", {})}
        other = StudioSettings(**{**settings.model_dump(), **changes, "limits": limits})
        return studio_app.create_app(other, loaders=small_models(StandInVoice(slow=0.02)))

    app = make("{}")
    app.add_middleware(Otherwise, make=make)
    app.add_api_route("/pid", lambda: os.getpid())
    return app


def write_voice_folder(folder: Path, names: tuple[str, ...] = ("anna", "bert")) -> Path:
    """What a studio takes for an exported voice."""
    folder.mkdir(parents=True)
    told = {"kind": "voicebox", "format": 1, "voice": names[0], "say": {"steps": 5, "cond_scale": 2.5}}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / MARK).touch()
    for name in names:
        Voice(torch.zeros(4, 80), FINGERPRINT).save(folder / "voices" / f"{name}.safetensors")
    return folder


def write_model(folder: Path, system: str) -> Path:
    """What a studio takes for a model of a system."""
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    (folder / "recipe.yaml").write_text(f"system: {system}\n")
    (folder / "config.json").write_text("{}")
    return folder


def write_run(
    folder: Path,
    *,
    steps: int = 40,
    total: int = 40,
    system: str = "soundstream",
    samples: bool = True,
    tone: float = 0.05,
) -> Path:
    """A run folder as the engine leaves it, with curves and samples of two steps."""
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    plan = {"num_train_steps": total, "lr": tone}
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"system": system, "model": {"dim": 8}, "plan": plan}))
    (folder / "environment.json").write_text(json.dumps({"madrigal": "0.1.0"}))
    lines = [{"step": s, "time": 1.0 * s, "loss": 4.0 / s, "lr": 0.1} for s in range(1, steps + 1)]
    lines[-1]["valid/loss"] = 0.5
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in (20, 40) if samples else ():
        place = folder / "samples" / f"step-{step:08d}"
        place.mkdir(parents=True)
        for group in ("000", "001"):
            for role, level in (("original", 0.5), ("reconstruction", 0.4), ("reconstruction-ema", 0.45)):
                wave = level * np.sin(np.arange(4_000) * tone)
                soundfile.write(place / f"{group}-{role}.wav", wave.astype(np.float32), 16_000)
        (place / "000-words.txt").write_text("some words\n")
    checkpoint = folder / "checkpoints" / f"step-{steps:08d}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"0" * 1000)
    return folder


def wav_bytes(seconds: float, rate: int = 16_000, channels: int = 1, kind: str = "WAV", **options: Any) -> bytes:
    wave = 0.3 * np.sin(np.arange(int(seconds * rate)) * 0.05)
    out = io.BytesIO()
    soundfile.write(out, np.repeat(wave[:, None], channels, 1).astype(np.float32), rate, format=kind, **options)
    return out.getvalue()


def in_a_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What it comes to, in a thread of its own: that of the tests may have a browser's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
