"""MaskGit: what is masked, what is made, and that a seed makes it again."""

from typing import Any

import pytest
import torch
from maskgit_toys import LEVELS, GreyVAE, Squares, base, critic, superres, transformer
from torch import Tensor

from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise
from madrigal.muse import maskgit as module
from madrigal.muse import painting
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.painting import Painting, highest
from madrigal.muse.pictures import grid, to_pil
from madrigal.muse.schedules import SCHEDULES, cosine_schedule, linear_schedule

FAST: dict[str, Any] = {"timesteps": 3}


def made(model: MaskGit, texts: list[str] | None = None, **options: Any) -> Tensor:
    ids = model.generate(texts or ["red"], return_ids=True, **{**FAST, **options})
    assert isinstance(ids, Tensor)
    return ids


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_go_from_all_to_none(name: str) -> None:
    shares = SCHEDULES[name](torch.linspace(0, 1, 9))
    torch.testing.assert_close(shares[[0, -1]], torch.tensor([1.0, 0.0]), atol=1e-6, rtol=0)
    assert (shares.diff() < 0).all()


def test_the_share_of_masked_tokens_follows_the_schedule() -> None:
    ids = torch.zeros(4000, 4, 4, dtype=torch.long)
    means = {}
    for name in SCHEDULES:
        torch.manual_seed(0)
        hidden, wanted = base(noise_schedule=name).masked(ids)
        assert torch.equal(hidden.flatten(1) == LEVELS, wanted)
        assert wanted.any(1).all()
        # Every place is as likely as any other.
        assert wanted.float().mean(0).std() < 0.02
        means[name] = wanted.float().mean()
    torch.testing.assert_close(
        torch.stack([*means.values()]), torch.tensor([2 / torch.pi, 2 / torch.pi, 0.5]), atol=0.03, rtol=0
    )
    torch.manual_seed(0)
    by_function = base(noise_schedule=linear_schedule).masked(ids)[1].float().mean()
    assert by_function == means["linear"]


def test_some_wanted_tokens_are_left_as_they_are() -> None:
    torch.manual_seed(0)
    hidden, wanted = base(no_mask_token_prob=0.25).masked(torch.zeros(500, 4, 4, dtype=torch.long))
    assert (hidden.flatten(1) == LEVELS).float().sum() / wanted.sum() == pytest.approx(0.75, abs=0.03)


def test_a_seed_makes_the_picture_again_and_another_seed_another() -> None:
    model = base()
    first = made(model, seed=3)
    torch.manual_seed(99)
    assert torch.equal(first, made(model, seed=3))
    assert not torch.equal(first, made(model, seed=4))
    assert 0 <= int(first.min()) <= int(first.max()) < LEVELS


@pytest.mark.parametrize("kind", ["plain", "critic", "self-critic", "self-conditioned"])
def test_a_batch_equals_one_by_one(kind: str) -> None:
    options: dict[str, Any] = {
        "critic": {"token_critic": critic()},
        "self-critic": {"self_token_critic": True},
        "self-conditioned": {"net": {"self_cond": True}},
    }.get(kind, {})
    model = base(**options)
    texts = ["red", "a blue one", "x"]
    together = made(model, texts, seed=[5, 6, 9])
    for row, seed in enumerate((5, 6, 9)):
        assert torch.equal(together[row : row + 1], made(model, [texts[row]], seed=seed))
    assert torch.equal(made(model, texts, seed=5)[1:2], made(model, texts[1:2], seed=6))


@pytest.mark.parametrize(
    "option",
    [
        {"temperature": 0.0},
        {"topk_filter_thres": 0.0},
        {"choice_temperature": 0.0},
        {"can_remask_prev_masked": True},
        {"cond_scale": 9.0},
        {"timesteps": 7},
        {"negative_texts": ["blue"]},
        {"force_not_use_token_critic": True},
        {"critic_noise_scale": 50.0},
    ],
)
def test_every_option_of_a_painting_changes_it(option: dict[str, Any]) -> None:
    needs_critic = bool({"force_not_use_token_critic", "critic_noise_scale"} & option.keys())
    model = base(size=32, **({"token_critic": critic()} if needs_critic else {}))
    plain = {"timesteps": 6, "temperature": 3.0, "topk_filter_thres": 0.5}
    assert not torch.equal(made(model, **plain), made(model, **{**plain, **option}))


def test_MS17_negative_prompts_with_a_critic() -> None:
    model = base(self_token_critic=True)
    ids = made(model, ["red", "blue"], negative_texts=["ugly", "bad"], temperature=0.0, choice_temperature=0.0)
    assert ids.shape == (2, 4, 4)
    with pytest.raises(UserError, match="nothing to be led away from"):
        base(net={"text_encoder": "none"}).generate(negative_texts=["x"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"texts": ["a", "b"], "negative_texts": ["c"]}, "texts: 2, negative_texts: 1"),
        ({"texts": ["a", "b"], "batch_size": 3}, "batch_size: 3, texts: 2"),
        ({"classes": [0, 1], "batch_size": 3}, "batch_size: 3, classes: 2"),
        ({"texts": ["a"], "cond_token_ids": torch.zeros(2, 4, 4, dtype=torch.long)}, "texts: 1, cond_token_ids: 2"),
    ],
)
def test_rows_that_do_not_agree_are_told(options: dict[str, Any], told: str) -> None:
    kind = {"text_encoder": "classes", "num_classes": 4} if "classes" in options else {}
    model = superres(net=kind) if "cond_token_ids" in options else base(net=kind)
    with pytest.raises(UserError, match=told):
        model.generate(**options, **FAST)


def test_MS21_without_text_and_with_classes() -> None:
    alone = base(net={"text_encoder": "none"})
    ids = alone.generate(batch_size=3, return_ids=True, **FAST)
    assert isinstance(ids, Tensor)
    assert ids.shape == (3, 4, 4)
    labelled = base(net={"text_encoder": "classes", "num_classes": 4})
    one = labelled.generate(classes=[1], seed=1, return_ids=True, temperature=3.0, **FAST)
    other = labelled.generate(classes=[2], seed=1, return_ids=True, temperature=3.0, **FAST)
    assert not torch.equal(one, other)  # type: ignore[arg-type]
    assert labelled(torch.zeros(2, 4, 4, dtype=torch.long), classes=[0, 3]).ndim == 0


def test_MS23_pictures_of_any_shape() -> None:
    model = base(size=(16, 24))
    assert model.generate(["red"], **FAST).shape == (1, 3, 16, 24)  # type: ignore[union-attr]
    assert model.generate(["red"], size=(8, 40), **FAST).shape == (1, 3, 8, 40)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="no multiple"):
        model.generate(["red"], size=(8, 41))
    assert model(torch.rand(1, 3, 16, 24), texts=["red"]).isfinite()


def test_MS18_without_a_vae_ids_are_enough_and_pictures_are_refused_in_a_sentence() -> None:
    model = MaskGit(16, transformer())
    ids = torch.zeros(1, 4, 4, dtype=torch.long)
    assert model(ids, texts=["red"]).isfinite()
    assert model.generate(["red"], fmap_size=4, return_ids=True, **FAST).shape == (1, 4, 4)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="give MaskGit vae"):
        model(torch.rand(1, 3, 16, 16), texts=["red"])


def test_MS20_pictures_are_clamped_before_they_are_bytes() -> None:
    wild = torch.tensor([-0.3, 0.5, 1.3]).view(1, 1, 1, 3).expand(1, 3, 1, 3)
    assert [to_pil(wild)[0].getpixel((x, 0)) for x in range(3)] == [(0,) * 3, (128,) * 3, (255,) * 3]
    images = base().generate(["red"], **FAST)
    assert isinstance(images, Tensor)
    assert 0 <= images.min() <= images.max() <= 1
    assert base().generate(["red"], return_pil_images=True, **FAST)[0].size == (16, 16)


def test_MS15_super_resolution_learns_with_its_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = superres(), []
    embed = type(model.transformer).embed

    def watched(self: Any, ids: Tensor, context: Any = None, **more: Any) -> Tensor:
        seen.append(more["cond_ids"])
        return embed(self, ids, context, **more)

    monkeypatch.setattr(type(model.transformer), "embed", watched)
    images = torch.stack([Squares(32)[index]["image"] for index in range(2)])
    loss = model(images, texts=["a", "b"])
    low = model.low_tokens_of(images)
    assert torch.equal(seen[0], low)
    assert low.shape == (2, 4, 4)
    loss.backward()
    assert model.transformer.low_tokens is not None
    assert model.transformer.low_tokens.weight.grad is not None
    assert model.transformer.low_tokens.weight.grad.abs().sum() > 0
    model.generate(["a", "b"], cond_images=images, **FAST)
    assert torch.equal(seen[1][:2], low)  # in making as in training


def test_MS15_MS16_other_low_resolution_other_loss_and_picture() -> None:
    model = superres()
    ids, low = torch.zeros(1, 8, 8, dtype=torch.long), torch.arange(16).view(1, 4, 4)
    losses, pictures = [], []
    for tokens in (low, low.flip(1)):
        torch.manual_seed(0)
        losses.append(model(ids, texts=["a"], cond_token_ids=tokens).item())
        pictures.append(made(model, ["a"], cond_token_ids=tokens, temperature=3.0, timesteps=5))
    assert losses[0] != losses[1]
    assert not torch.equal(*pictures)
    with pytest.raises(UserError, match="cond_images or cond_token_ids"):
        model.generate(["a"])
    with pytest.raises(UserError, match="with cond_token_ids"):
        model(ids, texts=["a"])


def test_only_a_share_of_the_rows_has_its_condition() -> None:
    model = base(cond_drop_prob=1.0)
    ids = torch.zeros(2, 4, 4, dtype=torch.long)
    losses = []
    for texts in (["a", "b"], ["c", "dd"]):
        torch.manual_seed(0)
        losses.append(model(ids, texts=texts))
    torch.testing.assert_close(*losses)
    torch.manual_seed(0)
    assert model(ids, texts=["a", "b"], cond_drop_prob=0.0) != losses[0]


def test_a_first_try_is_shown_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model = base(net={"self_cond": True}, self_cond_prob=0.25)
    tries = [model._first_try(torch.zeros(1, 4, 4, dtype=torch.long), None, None, None) for _ in range(80)]
    assert 8 <= sum(one is not None for one in tries) <= 34
    assert tries[[one is not None for one in tries].index(True)].requires_grad is False  # type: ignore[union-attr]


def test_critic_losses_count_by_their_weight() -> None:
    ids = torch.randint(0, LEVELS, (2, 4, 4))
    found = {}
    for weight in (0.0, 1.0, 3.0):
        model = base(token_critic=critic(), critic_loss_weight=weight)
        torch.manual_seed(0)
        found[weight] = model(ids, texts=["a", "b"]).item()
    assert found[1.0] > found[0.0]
    assert found[3.0] - found[0.0] == pytest.approx(3 * (found[1.0] - found[0.0]), rel=1e-3)
    torch.manual_seed(0)
    assert model(ids, texts=["a", "b"], train_only_generator=True).item() == pytest.approx(found[0.0])


@pytest.mark.parametrize("kind", ["critic", "self"])
def test_the_critics_doubts_reach_what_they_should(kind: str) -> None:
    model = base(token_critic=critic()) if kind == "critic" else base(self_token_critic=True)
    model(torch.randint(0, LEVELS, (2, 4, 4)), texts=["a", "b"]).backward()
    assert model.token_critic is not None
    assert all(p.grad is not None for p in model.token_critic.parameters())


def test_the_vae_is_no_part_and_stays_as_it_was() -> None:
    vae = GreyVAE()
    vae.train()
    model = MaskGit(16, transformer(), vae=vae)
    model(torch.rand(1, 3, 16, 16), texts=["a"]).backward()
    model.generate(["a"], **FAST)
    assert vae.training
    assert vae.scale.requires_grad
    assert vae.scale.grad is None
    assert not any(name.startswith(("vae", "cond_vae", "scale")) for name in model.state_dict())
    with pytest.raises(UserError, match="built for 20"):
        MaskGit(16, transformer(num_tokens=20), vae=vae)


def test_generation_leaves_mode_and_generators_as_they_were() -> None:
    model = base(net={"ff_dropout": 0.5})
    model.train()
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    first = made(model)
    assert torch.equal(torch.rand(3), wanted)
    assert model.training
    assert torch.equal(first, made(model))


def test_one_step_is_the_likeliest_of_all() -> None:
    model = base()
    ids = made(model, timesteps=1, cond_scale=1.0)
    with torch.no_grad():
        logits = model.transformer.eval()(torch.full((1, 4, 4), LEVELS), texts=["red"])
    assert torch.equal(ids.flatten(), logits.argmax(-1).flatten())


def test_the_number_of_masked_tokens_falls_by_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts = base(size=32), []
    embed = type(model.transformer).embed

    def watched(self: Any, ids: Tensor, *rest: Any, **more: Any) -> Tensor:
        counts.append(int((ids[0] == LEVELS).sum()))
        return embed(self, ids, *rest, **more)

    monkeypatch.setattr(type(model.transformer), "embed", watched)
    made(model, timesteps=8)
    shares = cosine_schedule(torch.arange(8) / 8)
    assert counts == [max(1, int(64 * share)) for share in shares.double()]


@pytest.mark.parametrize("computes_in_it", [True, False])
def test_sixteen_bits_are_computed_in_if_asked_for(computes_in_it: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("madrigal.engine.machine.has_bf16", lambda device: computes_in_it)
    model, seen = base(), []
    asked = model.transformer.to_out.register_forward_hook(lambda _, __, out: seen.append(out.dtype))
    for wanted in (False, True, "auto"):
        made(model, timesteps=1, bf16=wanted)
    asked.remove()
    auto = torch.bfloat16 if computes_in_it else torch.float32
    assert seen == [torch.float32, torch.bfloat16, auto]


def test_ids_are_drawn_by_their_chances_among_those_that_are_kept() -> None:
    logits = torch.tensor([[2.0, 0.0, 1.0, -9.0]]).repeat(4000, 1)
    wanted, noise = torch.ones(1, 4000, dtype=torch.bool), RowNoise([0])
    ids = painting._drawn(logits, wanted, noise, Painting(topk_filter_thres=0.3, temperature=2.0), left=0.5)
    chances = logits[0, :3].softmax(0)
    shares = torch.bincount(ids, minlength=4) / len(ids)
    assert shares[3] == 0
    torch.testing.assert_close(shares[:3], chances, atol=0.03, rtol=0)


def test_highest_takes_as_many_as_each_row_wants() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
    taken = highest(values, torch.tensor([2, 1]))
    assert taken.tolist() == [[False, True, True], [True, False, False]]


def test_options_of_a_painting_are_checked() -> None:
    assert Painting().timesteps == 18
    with pytest.raises(UserError, match="did you mean timesteps"):
        base().generate(["a"], timestep=3)
    with pytest.raises(UserError, match="choose one of them"):
        base(token_critic=critic(), self_token_critic=True)
    with pytest.raises(UserError, match="noise_schedule"):
        base(noise_schedule="sine")
    assert module.MaskGitConfig.model_fields["cond_drop_prob"].default == 0.5


@pytest.mark.parametrize("size", [0, -4, True, (16, 0)])
def test_a_size_is_a_number_of_pixels(size: Any) -> None:
    for name, options in (("image_size", {"size": size}), ("cond_image_size", {"cond_image_size": size})):
        with pytest.raises(UserError, match=rf"MaskGit: {name}\.[01] is "):
            base(**options)


def test_a_page_has_every_picture_and_its_caption() -> None:
    pictures = to_pil(torch.rand(5, 3, 8, 8))
    plain, told = grid(pictures), grid(pictures, ["a caption that is much too long for so small a picture"] * 5)
    assert plain.size == (3 * 12 + 4, 2 * 12 + 4)
    assert told.width > 3 * 128
    assert told.height > 2 * 128


def test_saved_and_loaded_it_makes_the_same(tmp_path: Any) -> None:
    model = base(token_critic=critic(), noise_schedule="arccos")
    model.save_pretrained(tmp_path)
    again = MaskGit.from_pretrained(tmp_path, vae=GreyVAE())
    assert again.config == model.config
    assert torch.equal(made(model), made(again))
    low = superres(self_token_critic=True)
    low.save_pretrained(tmp_path / "low")
    back = MaskGit.from_pretrained(tmp_path / "low", vae=GreyVAE())
    given = {"cond_token_ids": torch.arange(16).view(1, 4, 4)}
    assert torch.equal(made(low, **given), made(back, **given))
