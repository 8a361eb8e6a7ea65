"""What the documentation says is so: its blocks run, its links lead somewhere, its keys exist."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from blocks import ROOT, blocks

from madrigal.engine.recipe import recipe_names
from madrigal.verbs.systems import SYSTEMS

SMALL = (
    "model.spectral_dim=16 model.spectral_depth=1 model.codebook_dim=16 model.discr_spectrogram_channels=2 "
    "plan.num_train_steps=2 plan.batch_size=2 plan.discr_start_step=1 "
)
TINY = (
    "channels=2, codebook_dim=16, attn_heads=1, attn_dim_head=8, discr_multi_scales=(), "
    "complex_stft_discr_kwargs={'channels': 2}, "
)

SHORTENED: dict[str, dict[str, str]] = {
    "README.md": {
        # Both would install from the network: what is checked is that make knows how.
        "make demo": f"make --dry-run -C {ROOT} demo",
        "make test": f"make --dry-run -C {ROOT} test",
        # 24 levels as in the original, so that its bit rates stay.
        "soundstream/cpu ": f"soundstream/cpu {SMALL}",
        "SoundStream(codebook_size=1024": f"SoundStream({TINY}codebook_size=1024",
        "num_train_steps=100_000": "num_train_steps=1, grad_accum_every=1",
        "audiolm/cpu": "audiolm/tiny",
        "speartts/cpu": "speartts/tiny",
        "voicebox/cpu": "voicebox/tiny",
        "musiclm/cpu": "musiclm/tiny",
        "muse/cpu": "muse/tiny",
        "--seconds 6": "--seconds 0.5",
        "--seconds 10": "--seconds 0.5",
    },
    "docs/audiolm.md": {
        # Their cpu recipes are trained by test_recipes.py, made small.
        "audiolm/cpu": "audiolm/tiny",
        "masked-prediction/cpu": "masked-prediction/tiny",
        "semantic/cpu": "semantic/tiny",
        "coarse/cpu": "coarse/tiny",
        "fine/cpu": "fine/tiny",
        "semantic.plan.num_train_steps=1200": "semantic.plan.num_train_steps=6",
        "--seconds 6": "--seconds 0.5",
        "--n 4": "--n 2",
        "dim=512, depth=6": "dim=32, depth=1",
        "num_train_steps=100_000": "num_train_steps=1",
    },
    "docs/speartts.md": {
        # Their cpu recipes are trained by test_recipes.py, made small.
        **{
            f"{system}/cpu": f"{system}/tiny"
            for system in ("speartts", "masked-prediction", "speech-speech", "semantic-to-text", "text-to-semantic")
        },
        "coarse/cpu": "coarse/tiny",
        "fine/cpu": "fine/tiny",
    },
    "docs/voicebox.md": {
        **{
            f"{system}/cpu": f"{system}/tiny"
            for system in ("voicebox", "aligner", "durations", "voicebox-flow", "voicebox-distill")
        },
        # Frames of the length that the others have.
        "vocoder/cpu": "vocoder/tiny model.target_sample_hz=24000 model.hop=256 model.n_fft=1024",
        "dim=512, depth=8, heads=8": "dim=16, depth=2, heads=2, dim_head=8",
        "num_train_steps=100_000": "num_train_steps=1",
    },
    "docs/musiclm.md": {
        "mulan/cpu": "mulan/tiny",
        "musiclm/cpu": "musiclm/tiny",
        "mulan-quantizer/cpu": "mulan-quantizer/tiny",
        "semantic/cpu": "semantic/tiny",
        "--seconds 10": "--seconds 0.3",
        "seconds=10": "seconds=0.3",
        "--n 8": "--n 2",
        "--limit 500": "--limit 6",
        "dim=512, depth=6": "dim=32, depth=1",
        "num_train_steps=100_000": "num_train_steps=1",
        "batch_size=128": "batch_size=4",
    },
    "docs/muse.md": {
        **{f"{system}/cpu": f"{system}/tiny" for system in ("muse", "vqgan", "maskgit", "maskgit-superres")},
        "VQGanVAE(dim=64": "VQGanVAE(dim=16, discr_layers=2",
        "dim=256, depth=6": "dim=32, depth=1, heads=2, dim_head=16",
        "num_train_steps=10_000": "num_train_steps=1",
    },
    "docs/studio.md": {},
    "docs/tokenizers.md": {},
    "docs/tokens.md": {},
    "docs/text.md": {},
    "docs/soundstream.md": {
        "SoundStream(\n    codebook_size=4096": f"SoundStream({TINY}\n    codebook_size=4096",
        "grad_accum_every=8": "grad_accum_every=1",
        "num_train_steps=1_000_000": "num_train_steps=1",
    },
    "docs/training.md": {
        "plan.num_train_steps=40": "plan.num_train_steps=2",
        "plan.num_train_steps=60": "plan.num_train_steps=3",
        "data=recordings --run runs/two": "data=recordings plan.num_train_steps=1 --run runs/two",
        "data=recordings --run runs/node": "data=recordings plan.num_train_steps=1 --run runs/node",
    },
}
"""What runs in the place of what is too long for a test, by page. Everything else runs as it stands."""

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", SHORTENED)
def test_every_block_runs(page: str, workplace: Path) -> None:
    names: dict[str, Any] = {}
    failed = []
    for block in blocks(ROOT / page):
        try:
            block.shortened(SHORTENED[page]).run(names)
        except Exception:
            failed.append(f"{block.where} ({block.language})\n{traceback.format_exc(limit=-3)}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("page", SHORTENED)
def test_nothing_is_shortened_that_is_not_there(page: str) -> None:
    text = "".join(block.text for block in blocks(ROOT / page))
    assert [long for long in SHORTENED[page] if long not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        if "://" in target:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (place and place not in places(file)):
            broken.append(f"{target}#{place}" if place else target)
    assert not broken, f"{page.name} links to {', '.join(broken)}"


def places(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


PARTS = {
    "tokenizer": "masked-prediction",
    "semantic": "semantic",
    "coarse": "coarse",
    "fine": "fine",
    "pretrain": "speech-speech",
    "read": "semantic-to-text",
    "speak": "text-to-semantic",
    "aligner": "aligner",
    "vocoder": "vocoder",
    "durations": "durations",
    "flow": "voicebox-flow",
    "student": "voicebox-distill",
    "vqgan": "vqgan",
    "base": "maskgit",
    "superres": "maskgit",
}
"""The parts of the recipes that have some, and the systems that they are recipes of."""
SYSTEMS_OF = {"soundstream.md": ["soundstream"], "audiolm.md": ["semantic", "coarse", "fine"]}
"""Pages that speak of some systems alone; the others may name the keys of any."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_that_are_named_exist(page: Path, options_script: ModuleType) -> None:
    known: dict[tuple[str, str], set[str]] = {}
    for system in SYSTEMS:
        for section, kind in options_script.sections(system).items():
            known.setdefault((system, section.partition(" ")[0]), set()).update(kind.model_fields)
    wrong = []
    for part, section, key in re.findall(r"`'?(?:(\w+)\.)?(model|data|plan)\.(\w+)", page.read_text()):
        systems = [PARTS[part]] if part else SYSTEMS_OF.get(page.name, SYSTEMS)
        if not any(key in known.get((system, section), ()) for system in systems):
            wrong.append(f"{section}.{key}")
    assert not wrong, f"{page.name} names {', '.join(wrong)}"


def test_every_recipe_is_listed() -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    table = text.split("| recipe | for |\n|---|---|\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == recipe_names()
