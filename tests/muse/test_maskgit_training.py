"""MaskGit's trainers: pictures or tokens, resumed equals unbroken, what is frozen stays, and one batch is learned."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from maskgit_toys import GreyVAE, Squares, base, critic, superres, write_folder
from maskgit_trainers import PLAN, TRAINERS, judging, maskgit, whole_state
from PIL import Image
from torch import Tensor

from madrigal.data.images import ImageFolderDataset
from madrigal.errors import UserError
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_source import CaptionedSource
from madrigal.muse.maskgit_training import MaskGitTrainer, TokenCriticTrainer
from madrigal.muse.picture_tokens import tokens_of_pictures


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("name", TRAINERS)
def test_MS1_X2_X3_resumed_is_unbroken(name: str, tmp_path: Path) -> None:
    build = TRAINERS[name]
    whole = build(tmp_path / "whole").train()
    broken = build(tmp_path / "broken")

    def stop(figures: dict[str, float]) -> None:
        if broken.step == 4 and "loss" in figures:
            os.kill(os.getpid(), signal.SIGTERM)

    broken.train(stop)
    resumed = build(tmp_path / "broken", resume=True)
    assert resumed.step == 4
    assert_same(whole_state(whole), whole_state(resumed.train()))


@pytest.mark.parametrize("name", TRAINERS)
def test_MS2_every_checkpoint_loads_and_makes_pictures(name: str, tmp_path: Path) -> None:
    run = TRAINERS[name](tmp_path).train()
    for averaged in (False, True):
        model = MaskGit.from_pretrained(tmp_path, averaged=averaged, vae=GreyVAE())
        assert model.config == run.model.config
    low: dict[str, Any] = {"cond_token_ids": torch.zeros(1, 4, 4, dtype=torch.long)} if name == "superres" else {}
    assert model.generate(["black"], timesteps=2, **low).isfinite().all()  # type: ignore[union-attr]


def test_validation_has_fixed_masks_and_changes_nothing(tmp_path: Path) -> None:
    plain, watched = (maskgit(tmp_path / folder) for folder in ("plain", "watched"))
    for _ in range(2):
        expected = plain.train_step()
        figures = watched.validation()
        assert watched.validation() == figures
        assert 0 <= figures["valid/accuracy"] <= 1
        assert {"valid/loss", "valid/critic"} <= figures.keys()
        watched.write_samples()
        assert watched.train_step() == expected
    assert_same(whole_state(plain), whole_state(watched))


def test_samples_are_pictures_with_captions_and_a_page(tmp_path: Path) -> None:
    run = maskgit(tmp_path)
    names = sorted(path.name for path in run.write_samples())
    wanted = {"000-caption.txt", "000-made.png", "000-made-ema.png", "000-original.png", "000-page.png", "001-made.png"}
    assert wanted <= set(names)
    folder = next((tmp_path / "samples").iterdir())
    assert (folder / "000-caption.txt").read_text().strip() in Squares.names
    assert Image.open(folder / "000-page.png").width > 2 * 128


def test_MS7_only_the_critic_learns_in_its_training(tmp_path: Path) -> None:
    run = judging(tmp_path)
    before = {name: p.clone() for name, p in run.model.named_parameters()}
    run.train()
    changed = {name for name, p in run.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all(name.startswith("token_critic.") for name in changed)
    with pytest.raises(UserError, match="no critic to train"):
        TokenCriticTrainer(base(), dataset=Squares(), results_folder=tmp_path / "none", **PLAN)
    head = TokenCriticTrainer(base(self_token_critic=True), dataset=Squares(), results_folder=tmp_path / "head", **PLAN)
    assert list(head.turn_states[0].parameters) == ["token_critic.to_out.weight", "token_critic.to_out.bias"]


@pytest.mark.parametrize("kind", ["base", "superres"])
def test_pictures_on_the_fly_and_tokens_on_disk_are_the_same(kind: str, tmp_path: Path) -> None:
    size = 16 if kind == "base" else 32
    folder = write_folder(tmp_path / "pictures", size)
    (folder / "99.png").write_bytes(b"no picture")
    runs = []
    for cached in (True, False):
        model = base() if kind == "base" else superres()
        source = CaptionedSource(path=folder, cache_tokens=cached)
        runs.append(
            MaskGitTrainer(model, source=source, results_folder=tmp_path / f"{cached}", **{**PLAN, "valid_frac": 0})
        )
    disk, fly = (run.data.train for run in runs)
    assert len(disk) == 12
    assert len(fly) == 12
    (ids, low), (wanted, other) = (
        run.tokens(run.collate([data[index] for index in range(12)]))
        for run, data in zip(runs, (disk, fly), strict=True)
    )
    assert torch.equal(ids, wanted)
    assert [disk[i]["text"] for i in range(4)] == list(Squares.names)
    assert (low is None) == (kind == "base")
    if low is not None and other is not None:
        assert torch.equal(low, other)
    assert "99.png" in (tmp_path / "True" / "data" / "train" / "rejected.jsonl").read_text()


def test_tokens_are_made_once_and_anew_for_another_vae(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = CaptionedSource(path=write_folder(tmp_path / "pictures"), tokens=tmp_path / "tokens")
    model, count = base(), []
    encode = GreyVAE.encode
    monkeypatch.setattr(GreyVAE, "encode", lambda self, images: count.append(len(images)) or encode(self, images))
    first, _ = source.datasets(model, prepared_in=tmp_path / "a")
    again, _ = source.datasets(model, prepared_in=tmp_path / "b")
    assert sum(count) == 12
    assert torch.equal(first[3]["ids"], again[3]["ids"])
    model.vae.fingerprint = "another"
    source.datasets(model, prepared_in=tmp_path / "c")
    assert sum(count) == 24


def test_tokens_are_of_what_is_in_the_pictures_wherever_they_lie(tmp_path: Path) -> None:
    model, folder, said = base(), tmp_path / "pictures", []

    def tokens(place: Path) -> list[Tensor]:
        pictures = ImageFolderDataset(place, 16, train=False)
        found = tokens_of_pictures(model, pictures, tmp_path / "tokens", say=said.append)
        return [found[index]["ids"] for index in range(len(found))]

    folder.mkdir()
    for name, grey in (("a", 0), ("b", 255)):
        Image.new("RGB", (16, 16), (grey,) * 3).save(folder / f"{name}.bmp")
    before = (folder / "a.bmp").stat()
    tokens(folder)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    tokens(tmp_path / "copy")
    assert len(said) == 1
    # Rewritten with the same size, and with the time that it had.
    Image.new("RGB", (16, 16), (136,) * 3).save(folder / "a.bmp")
    os.utime(folder / "a.bmp", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (folder / "a.bmp").stat().st_size == before.st_size
    assert [int(ids.max()) for ids in tokens(folder)] == [8, 15]
    assert len(said) == 2


def test_a_missing_picture_keeps_its_place_among_the_captions(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "pictures", count=4)
    some, all_of_them = (ImageFolderDataset(folder, 16, train=False) for _ in range(2))
    some.files, some.captions = some.files[1:], (some.captions or [])[1:]
    tokens_of_pictures(base(), some, tmp_path / "tokens")
    (folder / "00.png").unlink()
    assert tokens_of_pictures(base(), all_of_them, tmp_path / "tokens")[0]["text"] == "dark"


def test_a_run_goes_on_with_its_own_vae_only(tmp_path: Path) -> None:
    maskgit(tmp_path, num_train_steps=2).train()
    other = base(self_token_critic=True)
    other.vae.fingerprint = "another"
    with pytest.raises(UserError, match="another vae"):
        MaskGitTrainer(other, dataset=Squares(), results_folder=tmp_path, resume=True, **PLAN)


def test_data_that_do_not_fit_are_told(tmp_path: Path) -> None:
    class Silent(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"image": super().__getitem__(index)["image"]}

    run = MaskGitTrainer(base(), dataset=Silent(), results_folder=tmp_path, **PLAN)
    with pytest.raises(UserError, match="the pictures have none"):
        run.train_step()
    with pytest.raises(UserError, match="give one of them"):
        MaskGitTrainer(base(), folder=tmp_path, source=CaptionedSource(path=tmp_path), num_train_steps=1)


def test_classes_are_captions_by_name(tmp_path: Path) -> None:
    names = tuple(sorted(Squares.names))
    model = base(net={"text_encoder": "classes", "num_classes": 4}, class_names=names)
    run = MaskGitTrainer(model, dataset=Squares(), results_folder=tmp_path, **PLAN)
    batch = run.collate([Squares()[0], Squares()[3]])
    assert run.given(batch)["classes"].tolist() == [names.index("black"), names.index("white")]
    run.train_step()


def test_one_batch_is_learned_and_made_again(tmp_path: Path) -> None:
    run = MaskGitTrainer(
        base(cond_drop_prob=0.1),
        dataset=Squares(count=4),
        results_folder=tmp_path,
        **{**PLAN, "num_train_steps": 200, "batch_size": 4, "valid_frac": 0, "lr": 3e-3, "use_ema": False},
    )
    losses = [run.train_step()["loss"] for _ in range(200)]
    assert sum(losses[-20:]) < sum(losses[:20]) / 4  # what has no condition and no token cannot be known
    ids = run.model.generate(list(Squares.names), timesteps=4, cond_scale=2.0, return_ids=True)
    wanted = torch.stack([Squares(ids=True)[index]["ids"] for index in range(4)])
    assert (ids == wanted).float().mean() > 0.95  # type: ignore[union-attr]


def test_super_resolution_learns_from_its_low_resolution(tmp_path: Path) -> None:
    class Unnamed(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return {**super().__getitem__(index), "text": ""}

    run = MaskGitTrainer(
        superres(),
        dataset=Unnamed(32, count=4),
        results_folder=tmp_path,
        **{**PLAN, "num_train_steps": 80, "batch_size": 4, "valid_frac": 0, "lr": 3e-3, "use_ema": False},
    )
    for _ in range(80):
        run.train_step()
    images = torch.stack([Squares(32)[index]["image"] for index in range(4)])
    ids = run.model.generate([""] * 4, cond_images=images, timesteps=4, cond_scale=1.0, return_ids=True)
    assert (ids == GreyVAE().encode(images)).float().mean() > 0.95  # type: ignore[union-attr]


def test_a_critic_learns_what_does_not_belong(tmp_path: Path) -> None:
    run = TokenCriticTrainer(
        base(token_critic=critic()),
        dataset=Squares(count=4),
        results_folder=tmp_path,
        **{**PLAN, "num_train_steps": 60, "batch_size": 4, "valid_frac": 0, "lr": 3e-3},
    )
    first = run.train_step()["loss"]
    for _ in range(59):
        last = run.train_step()["loss"]
    assert last < first * 0.6
