"""docs/options.md is written by a script, and says what the options are now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_options", ROOT / "scripts" / "write_options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_up_to_date(script: ModuleType) -> None:
    assert script.PAGE.read_text() == script.page(), "run `make docs`"


def test_every_option_is_described(script: ModuleType) -> None:
    keys = [(section, key, field) for section, fields in script.options().items() for key, field in fields.items()]
    assert len(keys) > 100
    assert [f"{section}.{key}" for section, key, field in keys if not field.description] == []
