"""docs/options.md is written by a script, and says what the options are now."""

from __future__ import annotations

from types import ModuleType

from madrigal.verbs.systems import SYSTEMS


def test_page_is_up_to_date(options_script: ModuleType) -> None:
    assert options_script.PAGE.read_text() == options_script.page(), "run `make docs`"


def test_every_option_is_described(options_script: ModuleType) -> None:
    keys = [
        (section, key, field) for section, fields in options_script.options().items() for key, field in fields.items()
    ]
    assert len(keys) > 300
    assert [f"{section}.{key}" for section, key, field in keys if not field.description] == []


def test_every_key_of_every_system_is_listed(options_script: ModuleType) -> None:
    text = options_script.page()
    for system in SYSTEMS:
        assert f"\n## {system}\n" in text
    for keys in options_script.options().values():
        assert [key for key in keys if f"\n| `{key}` |" not in text] == []
