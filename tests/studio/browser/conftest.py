from __future__ import annotations

import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driving
import numpy as np
import pytest
import soundfile
from stand_ins import write_run


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if lacking := driving.missing():
        pytest.skip(f"no browser: {lacking}")
    with driving.browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with sounds of two seconds, one without samples, and recordings to train on."""
    root = tmp_path_factory.mktemp("studio")
    for name, tone in (("codec", 0.05), ("group/other", 0.09)):
        run = write_run(root / "runs" / name, tone=tone)
        for number, file in enumerate(sorted(run.rglob("*.wav"))):
            wave = 0.4 * np.sin(np.arange(32_000) * (tone + 0.003 * number))
            soundfile.write(file, wave.astype(np.float32), 16_000)
    write_run(root / "runs" / "stopped", steps=20, total=100, samples=False)
    (root / "recordings").mkdir()
    for number in range(8):
        wave = 0.3 * np.sin(np.arange(16_000) * (0.05 + 0.01 * number))
        soundfile.write(root / "recordings" / f"{number}.wav", wave.astype(np.float32), 16_000)
    return root / "runs"


@pytest.fixture(scope="session")
def address(folder: Path, chromium: Any) -> Iterator[str]:
    """`madrigal studio` as people start it, with the voice that is shipped."""
    options = ["--control", "--data-root", str(folder.parent / "recordings"), "--timeout", str(10 * driving.WAIT)]
    with driving.studio(folder, *options) as address:
        yield address


@pytest.fixture(scope="session")
def spoken(address: str) -> bytes:
    """The sentence with seed 7, as a wav file; a streamed one would not say how long it is."""
    body = json.dumps({"model": "tts-1", "input": driving.SENTENCE, "response_format": "pcm", "seed": 7}).encode()
    asked = urllib.request.Request(f"{address}/v1/audio/speech", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=driving.WAIT) as answer:
        samples = np.frombuffer(answer.read(), np.int16)
        file = io.BytesIO()
        soundfile.write(file, samples, int(answer.headers["X-Madrigal-Sample-Rate"]), format="WAV")
    return file.getvalue()


@pytest.fixture
def troubles() -> list[str]:
    """What the browser complained of. A test that provokes an error clears it."""
    return []


@pytest.fixture
def open_page(chromium: Any, address: str, troubles: list[str]) -> Iterator[Any]:
    """Opens a route of the page; afterwards nothing may have been complained of."""
    contexts = []

    def open_route(route: str = "", *, at: str = address, **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(1000 * driving.WAIT)
        page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective))"
        )
        page.goto(f"{at}/#/{route}")
        return page

    yield open_route
    for context in contexts:
        context.close()
    assert troubles == []
