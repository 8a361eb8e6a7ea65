"""Models that rebuild themselves: from a folder, a checkpoint, a run, a shipped name, the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from toys import GanTrainer, ToyConfig, ToyGan, make, saved_state

from madrigal.engine import pretrained
from madrigal.engine.pretrained import locate
from madrigal.errors import UserError


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Any step towards the hub is noted and fails."""
    asked: list[str] = []

    def refuse(name: str, **_: Any) -> str:
        asked.append(name)
        raise ConnectionError("there is no network in a test")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    return asked


def assert_same_model(one: ToyGan, other: ToyGan) -> None:
    assert one.config == other.config
    for name, tensor in one.exported().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_what_was_saved_comes_back_without_the_parts_for_training(tmp_path: Path) -> None:
    model = ToyGan(ToyConfig(hidden=6))
    model.commits += 3
    folder = model.save_pretrained(tmp_path / "deep" / "model")
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
    names = {name.removeprefix("model/") for name in saved_state(folder)}
    assert names == {"codebook", "commits", *(n for n in model.state_dict() if n.startswith("generator"))}
    assert_same_model(ToyGan.from_pretrained(folder), model)
    assert_same_model(ToyGan.from_pretrained(str(folder)), model)


def test_a_tensor_with_two_names_is_saved_too(tmp_path: Path) -> None:
    class Tied(ToyGan):
        def __init__(self, config: ToyConfig | None = None) -> None:
            super().__init__(config)
            self.again = torch.nn.Linear(8, self.config.hidden)
            self.again.weight = self.generator[0].weight

    model = Tied()
    other = Tied.from_pretrained(model.save_pretrained(tmp_path))
    assert torch.equal(other.again.weight, model.generator[0].weight)
    assert other.again.weight is other.generator[0].weight


def test_a_run_gives_its_best_checkpoint_and_its_averaged_weights(tmp_path: Path, no_network: list[str]) -> None:
    trainer = make(GanTrainer, tmp_path, num_train_steps=6, save_model_every=3, best_metric="valid/mse")
    trainer.train()
    trainer.best = {"metric": "valid/mse", "value": 0.0, "step": 3}
    trainer.save(trainer.run.checkpoints / "step-00000006")
    assert locate(tmp_path) == trainer.run.checkpoints / "step-00000003"
    saved = saved_state(trainer.run.checkpoints / "step-00000003")
    for averaged, kind in ((True, "ema"), (False, "model")):
        model = ToyGan.from_pretrained(tmp_path, averaged=averaged)
        assert torch.equal(model.generator[0].weight, saved[f"{kind}/generator.0.weight"])
        assert model.commits == saved[f"{kind}/commits"]
    assert not no_network


def test_options_reach_the_model(tmp_path: Path) -> None:
    class Optional(ToyGan):
        def __init__(self, config: ToyConfig | None = None, *, loud: bool = False) -> None:
            super().__init__(config)
            self.loud = loud

    assert Optional.from_pretrained(ToyGan().save_pretrained(tmp_path), loud=True).loud


def test_a_shipped_model_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[str]) -> None:
    model = ToyGan()
    model.save_pretrained(tmp_path / "speech")
    monkeypatch.setattr(pretrained, "SHIPPED", tmp_path)
    assert_same_model(ToyGan.from_pretrained("speech"), model)
    with pytest.raises(
        UserError, match=r"There is no model 'music': no such folder, and the shipped ones are: speech\."
    ):
        ToyGan.from_pretrained("music")
    assert not no_network


def test_only_a_hub_name_goes_to_the_network(tmp_path: Path, no_network: list[str]) -> None:
    for name in (tmp_path, "./owner/name", "/owner/name", "name", tmp_path / "a" / "b"):
        with pytest.raises(UserError):
            ToyGan.from_pretrained(name)
    assert no_network == []
    with pytest.raises(UserError, match=r"owner/name is no local folder and could not be fetched .*no network"):
        ToyGan.from_pretrained("owner/name")
    assert no_network == ["owner/name"]


def test_a_local_folder_wins_over_a_hub_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ToyGan().save_pretrained("owner/name")
    ToyGan.from_pretrained("owner/name")
    assert no_network == []


def test_a_model_from_the_hub_is_built_from_what_was_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ToyGan()
    model.save_pretrained(tmp_path / "cache")
    fetched: dict[str, Any] = {}

    def download(name: str, **options: Any) -> str:
        fetched.update(name=name, **options)
        return str(tmp_path / "cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert_same_model(ToyGan.from_pretrained("owner/name"), model)
    assert fetched == {"name": "owner/name", "allow_patterns": ["config.json", "model.safetensors"]}


def test_pushing_uploads_what_would_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Api:
        def __init__(self, token: str | None = None) -> None:
            calls.append(token)

        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
            calls.append((repo_id, private, exist_ok))

        def upload_folder(self, *, repo_id: str, folder_path: str) -> str:
            calls.append(sorted(p.name for p in Path(folder_path).iterdir()))
            return f"https://hub/{repo_id}"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert ToyGan().push_to_hub("me/toy", private=True, token="secret") == "https://hub/me/toy"
    assert calls == ["secret", ("me/toy", True, True), ["config.json", "model.safetensors"]]


def test_what_does_not_fit_is_told_in_a_sentence(tmp_path: Path) -> None:
    folder = ToyGan().save_pretrained(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(json.dumps({"hidden": 5}))
    with pytest.raises(UserError, match=r"do not fit their config\.json: generator\.0\.weight differs"):
        ToyGan.from_pretrained(folder)
    for content in ("{", '{"hidden": "wide"}', "[]"):
        config.write_text(content)
        with pytest.raises(UserError, match=r"does not hold a ToyGan: its config\.json cannot be used"):
            ToyGan.from_pretrained(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="neither an exported model, nor a checkpoint, nor a run folder"):
        ToyGan.from_pretrained(tmp_path / "empty")


def test_damaged_weights_are_not_loaded(tmp_path: Path) -> None:
    folder = ToyGan().save_pretrained(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(UserError, match=r"model\.safetensors is damaged"):
        ToyGan.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="do not fit"):
        ToyGan.from_pretrained(folder)
