"""Screenshots of the studio's pages for the docs, over runs that are made up for it.

The sounds are real: the shipped voice speaks, the shipped codec codes it at several rates. The curves are drawn by a
formula, for a training of hours has no place here. Pictures need a Muse: `--muse RUN` names a run of one; `--music RUN`
one of MusicLM.

    python scripts/studio_screenshots.py docs/images
"""

import argparse
import contextlib
import hashlib
import io
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "studio" / "browser"))

import numpy as np
import soundfile
import soxr
import torch
import yaml
from driving import browser, studio
from PIL import Image

from madrigal.engine.checkpoint import checkpoint_name
from madrigal.engine.pretrained import SHIPPED
from madrigal.engine.run import RunFolder

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "She sells sea shells by the sea shore.",
    "A rainbow is a division of white light into many beautiful colours.",
]
SIZE = {"width": 1200, "height": 800}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder that the pictures go to")
    parser.add_argument("--muse", type=Path, help="a run of Muse for the page of pictures")
    parser.add_argument("--prompt", default="a flag of belgium, noto style", help="what Muse draws")
    parser.add_argument("--music", type=Path, help="a run of MusicLM for the page of music")
    parser.add_argument("--all", action="store_true", help="also in dark, and at the width of a phone")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "runs"
        sounds = make_runs(folder)
        for system, run in {"muse": asked.muse, "music": asked.music}.items():
            if run:
                shutil.copytree(run, folder / system, symlinks=True)
        training = contextlib.ExitStack()
        with training, studio(folder, "--timeout", "600") as address, browser() as chromium:
            for run in ("codec-6k", "voice/flow"):
                training.enter_context(RunFolder(folder / run).held())
            looks = [("", "light", SIZE)]
            if asked.all:
                looks += [("-dark", "dark", SIZE), ("-phone", "light", {"width": 375, "height": 760})]
            for ending, scheme, size in looks:
                context = chromium.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1)
                page = context.new_page()
                page.set_default_timeout(120_000)
                shots = Shots(page, address, asked.out, ending)
                shots.runs()
                shots.voices()
                shots.edit(sounds[0])
                shots.pictures(asked.prompt if asked.muse else None)
                shots.music("a rapid cheerful flute tune in a major key, up high" if asked.music else None)
                shots.listening()
                context.close()


class Shots:
    """Goes to each page as a person would, and takes its picture."""

    def __init__(self, page: Any, address: str, out: Path, ending: str) -> None:
        self.page, self.address, self.out, self.ending = page, address, out, ending

    def open(self, route: str) -> None:
        self.page.goto(f"{self.address}/#/{route}")
        self.page.wait_for_selector("main h1")
        self.page.wait_for_timeout(600)

    def take(self, name: str, *, extra: bool = False, whole: bool = False) -> None:
        if extra and not self.ending:
            return
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(300)
        write_small(self.page.screenshot(full_page=whole), self.out / f"studio-{name}{self.ending}.png")

    def runs(self) -> None:
        self.open("runs")
        self.page.wait_for_selector("tr[data-run]")
        self.take("table", extra=True)
        self.open("run/codec-6k")
        self.page.wait_for_selector(".chart canvas")
        self.page.get_by_label("Compare with").select_option("codec-3k")
        self.page.get_by_label("Smoothing").fill("0.8")
        self.page.wait_for_timeout(400)
        box = self.page.locator(".chart canvas").first.bounding_box()
        self.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 80)
        self.page.wait_for_timeout(300)
        write_small(self.page.screenshot(), self.out / f"studio-runs{self.ending}.png")
        for part in ("Samples", "Recipe", "Compare recipes", "Disk"):
            self.page.get_by_role("tab", name=part, exact=True).click()
            if part == "Samples":
                self.page.locator(".sample img").nth(8).wait_for()
            self.page.wait_for_timeout(900)
            self.take(f"run-{part.split()[0].lower()}", extra=part != "Samples")

    def voices(self) -> None:
        self.open("voices")
        for text in (SENTENCES[1], SENTENCES[0]):
            self.page.get_by_label("Text").fill(text)
            self.page.keyboard.press("Control+Enter")
            self.page.locator(".take", has_text=text).wait_for(timeout=300_000)
        self.page.get_by_role("button", name="Stop").and_(self.page.locator(":disabled")).wait_for(timeout=30_000)
        self.take("voices")

    def edit(self, sound: bytes) -> None:
        self.open("edit")
        self.page.locator("input[type=file]").set_input_files(
            {"name": "fox.wav", "mimeType": "audio/wav", "buffer": sound}
        )
        self.page.get_by_label("What is said").fill(SENTENCES[0])
        self.page.get_by_role("button", name="Find the words").click()
        self.page.locator(".words button").first.wait_for(timeout=300_000)
        self.page.locator(".words button", has_text="lazy").click()
        self.page.get_by_label("by", exact=True).fill("sleepy")
        self.page.get_by_role("button", name="Replace").click()
        self.page.locator(".compared").wait_for(timeout=300_000)
        self.page.evaluate("scrollTo(0, 0)")
        self.take("edit", whole=True)

    def pictures(self, prompt: str | None) -> None:
        self.open("pictures")
        if prompt:
            self.page.get_by_label("Prompt").fill(prompt)
            self.page.keyboard.press("Control+Enter")
            self.page.locator(".drawn img").first.wait_for(timeout=900_000)
            self.page.wait_for_timeout(300)
            self.page.get_by_role("button", name="Paint over", exact=True).first.click()
            box = self.page.locator("canvas.brush").bounding_box()
            self.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.35 * box["height"])
            self.page.mouse.down()
            self.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.4 * box["height"], steps=5)
            self.page.mouse.up()
        self.take("pictures", whole=True)

    def music(self, prompt: str | None) -> None:
        self.open("music")
        if prompt:
            self.page.get_by_label("Prompt").fill(prompt)
            self.page.get_by_label("Tries").fill("4")
            self.page.get_by_label("Prompt").press("Control+Enter")
            self.page.locator(".take").first.wait_for(timeout=900_000)
        self.page.wait_for_timeout(300)
        self.take("music")

    def listening(self) -> None:
        made = self.page.request.get(f"{self.address}/api/listening").json()["tests"]
        if not made:
            for kind, title in (("mushra", "Codec at three and six kilobits"), ("ab", "Which codec sounds better?")):
                body = {"kind": kind, "title": title, "runs": ["codec-3k", "codec-6k"]}
                answer = self.page.request.post(f"{self.address}/api/listening", data=body)
                assert answer.ok, answer.text()
                answered(self.page.request, self.address, answer.json()["id"])
            made = self.page.request.get(f"{self.address}/api/listening").json()["tests"]
        by_kind = {test["kind"]: test["id"] for test in made}
        self.open(f"listening/{by_kind['mushra']}")
        self.page.wait_for_selector(".results table")
        self.page.locator("details:not([open]) summary", has_text="Results").first.click()
        self.page.locator(".results table").nth(1).wait_for()
        self.take("listening")
        self.open(f"listen/{by_kind['ab']}")
        self.take("welcome", extra=True)
        for kind in ("ab", "mushra"):
            self.open(f"listen/{by_kind[kind]}")
            self.page.get_by_label("Your name").fill("screenshot")
            self.page.get_by_role("button", name="Begin").click()
            self.page.wait_for_selector(".trial")
            self.take(f"trial-{kind}", extra=True)


def answered(request: Any, address: str, test: str) -> None:
    """Twelve listeners who mostly hear what is better; their ears are a formula too."""
    draw = np.random.default_rng(0)
    whole = request.get(f"{address}/api/listening/{test}").json()
    runs = {run: sums(request, address, run) for run in ("codec-3k", "codec-6k")}
    merit = {"codec-3k": 62.0, "codec-6k": 70.0}
    for trial in whole["trials"]:
        worth = []
        for one in trial["stimuli"]:
            sound = hashlib.sha256(request.get(address + one["url"]).body()).hexdigest()
            worth.append(next((merit[run] for run, known in runs.items() if sound in known), 96.0))
        for listener in range(12):
            heard = [value + draw.normal(0, 9) for value in worth]
            if whole["kind"] == "ab":
                close = abs(heard[0] - heard[1]) < 6
                given: dict[str, Any] = {"choice": "none" if close else "ab"[int(np.argmax(heard))]}
            else:
                scores = np.clip(heard, 0, 100).round()
                given = {"scores": {one["token"]: int(score) for one, score in zip(trial["stimuli"], scores)}}
            body = {"listener": f"listener {listener}", "trial": trial["id"], **given}
            answer = request.post(f"{address}/api/listening/{test}/answers", data=body)
            assert answer.ok, answer.text()


def sums(request: Any, address: str, run: str) -> set[str]:
    """The sums of a run's newest sounds but the originals: by them a blind stimulus is known again."""
    newest = request.get(f"{address}/api/runs/{run}/samples").json()["steps"][0]["items"]
    urls = [address + item["url"] for item in newest if item["role"] != "original"]
    return {hashlib.sha256(request.get(url).body()).hexdigest() for url in urls}


def make_runs(folder: Path) -> list[bytes]:
    """Runs as the engine leaves them; gives the sentences as wav files."""
    spoken = list(speak())
    recipe = yaml.safe_load((Path(__file__).parents[1] / "madrigal/recipes/soundstream/cpu.yaml").read_text())
    codec = {3: (6, "codec-3k", 4800, 4800), 6: (12, "codec-6k", 4800, 3120)}
    for rate, (levels, name, total, step) in codec.items():
        plan = {**recipe["plan"], "num_train_steps": total, "lr": 5e-4 if rate == 3 else 3e-4}
        model = {**recipe["model"], "rq_num_quantizers": levels}
        run = new_run(folder / name, {**recipe, "model": model, "plan": plan}, total, step, seed=rate)
        for at, part in ((1500, 2), (3000, 1)):
            write_sounds(run.samples / checkpoint_name(at), spoken, levels // part)
    for name, total, step in (("voice", None, 0), ("voice/aligner", 3000, 3000), ("voice/durations", 4000, 4000)):
        new_run(
            folder / name, {"system": name.split("/")[-1].replace("voice", "voicebox")}, total, step, seed=len(name)
        )
    new_run(folder / "voice/flow", {"system": "voicebox-flow"}, 40_000, 17_850, seed=1)
    new_run(folder / "mulan", {"system": "mulan"}, 6000, 2400, seed=2)
    return [wav(sound, 24_000) for sound in spoken]


def new_run(path: Path, recipe: dict[str, Any], total: int | None, step: int, *, seed: int) -> RunFolder:
    run = RunFolder(path)
    path.mkdir(parents=True)
    if total:
        recipe = {**recipe, "plan": {**recipe.get("plan", {}), "num_train_steps": total}}
        run.checkpoints.mkdir()
    run.write_recipe(recipe, {"torch": torch.__version__, "device": "cpu", "threads": 1})
    draw = np.random.default_rng(seed)
    begin = time.time() - 1.1 * step
    with run.metrics.open("w") as file:
        for at in range(10, step + 1, 10):
            for values in curves(at, total or 1, draw, seed):
                file.write(json.dumps({"step": at, "time": round(begin + 1.1 * at, 3), **values}) + "\n")
    for at in range(1000, step + 1, 1000):
        kept = run.checkpoints / checkpoint_name(at)
        kept.mkdir(parents=True)
        (kept / "model.safetensors").write_bytes(bytes(2_000_000 + 1000 * at))
    return run


def curves(step: int, total: int, draw: np.random.Generator, seed: int) -> Iterator[dict[str, float]]:
    """Falling and noisy, as losses are."""
    fall = math.exp(-step / 700)
    noise = lambda scale: float(draw.normal(0, scale))
    mel = 0.62 + 0.03 * seed + 1.4 * fall + noise(0.05)
    waveform = 0.021 + 0.05 * fall + abs(noise(0.003))
    stft = 0.9 + 1.1 * fall + noise(0.07)
    commitment = 0.05 + 0.4 * fall + abs(noise(0.02))
    yield {
        "generator/mel": mel,
        "generator/waveform": waveform,
        "generator/stft": stft,
        "generator/commitment": commitment,
        "generator/loss": mel + 3 * waveform + stft + 0.25 * commitment,
        "generator/grad_norm": 1.2 + 6 * fall + abs(noise(0.4)),
        "generator/lr": 5e-4 * min(1.0, step / 200) * (0.5 + 0.5 * math.cos(math.pi * min(1.0, step / total))),
        "generator/perplexity_mean": 820 - 700 * fall + noise(12),
    }
    if step % 250 == 0:
        yield {
            "valid/mel": 0.65 + 0.03 * seed + 1.35 * fall + noise(0.01),
            "valid/waveform": 0.022 + 0.05 * fall,
            "valid/stft": 0.93 + 1.1 * fall + noise(0.01),
            "valid/ema/mel": 0.62 + 0.03 * seed + 1.45 * fall + noise(0.004),
            "valid/ema/waveform": 0.021 + 0.052 * fall,
            "valid/ema/stft": 0.91 + 1.15 * fall + noise(0.004),
        }


def speak() -> Iterator[np.ndarray]:
    from madrigal.voicebox.loading import load_voicebox

    voice = load_voicebox(SHIPPED / "voice-24k")
    for sentence in SENTENCES:
        yield torch.cat(list(voice.stream(sentence)), dim=-1).numpy().reshape(-1)


def write_sounds(folder: Path, spoken: list[np.ndarray], levels: int) -> None:
    from madrigal.soundstream.codec import SoundStream

    codec = SoundStream.from_pretrained(SHIPPED / "speech-16k", discriminators=False).eval()
    folder.mkdir(parents=True)
    for number, sound in enumerate(spoken):
        wave = torch.from_numpy(soxr.resample(sound, 24_000, 16_000).astype(np.float32))[None, None]
        soundfile.write(folder / f"{number:03d}-original.wav", wave[0, 0].numpy(), 16_000)
        for ending, count in (("", max(1, levels - 1)), ("-ema", levels)):
            with torch.inference_mode():
                made = codec.decode_from_codebook_indices(codec.encode(wave, num_quantizers=count))
            soundfile.write(folder / f"{number:03d}-reconstruction{ending}.wav", made.reshape(-1).numpy(), 16_000)


def wav(sound: np.ndarray, rate: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, sound, rate, format="WAV")
    return file.getvalue()


def write_small(png: bytes, path: Path, most: int = 200_000) -> None:
    """As few colours as the size asks for; 256 of them are enough for a page of ours."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (256, 128, 64, 32):
        image.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= most:
            return


if __name__ == "__main__":
    main()
