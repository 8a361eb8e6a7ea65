"""Muse: both stages, and pictures of which a part is made anew."""

from typing import Any

import pytest
import torch
from maskgit_toys import GreyVAE, base, superres

from madrigal.errors import UserError
from madrigal.muse.editing import around, inside, varied
from madrigal.muse.muse import Muse
from madrigal.muse.painting import Painting

FAST: dict[str, Any] = {"timesteps": 3, "temperature": 3.0}


def muse(**options: Any) -> Muse:
    return Muse(base(), superres(), **options)


def pictures(count: int = 1, size: int = 32) -> torch.Tensor:
    cells = torch.randint(0, 16, (count, size // 8, size // 8), generator=torch.Generator().manual_seed(0)) / 15
    return cells.repeat_interleave(8, 1).repeat_interleave(8, 2)[:, None].expand(-1, 3, -1, -1).contiguous()


def test_both_stages_are_a_function_of_the_seed_and_a_batch_is_one_by_one() -> None:
    model = muse()
    images, low = model.generate(["red", "blue"], seed=4, return_lowres=True, **FAST)
    assert images.shape == (2, 3, 32, 32)
    assert low.shape == (2, 3, 16, 16)
    torch.manual_seed(5)
    assert torch.equal(images[1:], model.generate(["blue"], seed=5, **FAST))
    assert not torch.equal(images[1:], model.generate(["blue"], seed=6, **FAST))


def test_MS20_called_it_gives_pil_images_of_any_shape() -> None:
    model = muse()
    made, low = model(["red"], timesteps=2, superres_timesteps=1, return_lowres=True)
    assert (made[0].size, low[0].size) == ((32, 32), (16, 16))
    assert model(["red"], timesteps=2, return_pil_images=False, size=(16, 48)).shape == (1, 3, 16, 48)
    assert Muse(base())(["red"], timesteps=2)[0].size == (16, 16)


def test_how_it_paints_is_its_own_choice_unless_a_call_says_otherwise() -> None:
    one, many = muse(painting=Painting(timesteps=1)), muse(painting=Painting(timesteps=5, temperature=3.0))
    assert not torch.equal(one.generate(["red"]), many.generate(["red"]))
    assert torch.equal(one.generate(["red"], timesteps=5, temperature=3.0), many.generate(["red"]))
    assert not torch.equal(many.generate(["red"]), many.generate(["red"], superres_timesteps=1))


def test_called_it_paints_as_it_would_generate() -> None:
    model = muse(painting=Painting(timesteps=2, temperature=3.0, cond_scale=1.0))
    assert torch.equal(model(["red"], return_pil_images=False), model.generate(["red"]))
    called = model(["red"], timesteps=5, cond_scale=4.0, return_pil_images=False)
    assert torch.equal(called, model.generate(["red"], timesteps=5, cond_scale=4.0))
    assert not torch.equal(called, model.generate(["red"]))


def test_stages_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="give it as superres"):
        Muse(superres())
    with pytest.raises(UserError, match="one size"):
        Muse(base(8), superres())


def test_tokens_outside_of_the_mask_stay() -> None:
    model, images = Muse(base(32)), pictures()
    mask = torch.zeros(1, 32, 32, dtype=torch.bool)
    mask[:, 5:11, 8:20] = True
    edit = inside(images, mask)
    ids, made = edit.tokens(model.base, (32, 32))
    assert made.sum() == 2 * 3  # cells that the mask touches
    painted = model.base.generate_ids(["red"], ids=ids, made=made, seed=1, **FAST)
    assert torch.equal(painted[~made], ids[~made])
    assert not torch.equal(painted[made], ids[made])
    result = edit.laid(model.generate(["red"], edit=edit, seed=1, **FAST))
    assert torch.equal(result.movedim(1, -1)[~mask], images.movedim(1, -1)[~mask])
    assert not torch.equal(result.movedim(1, -1)[mask], images.movedim(1, -1)[mask])


def test_a_mask_of_nothing_changes_no_token() -> None:
    model, images = Muse(base(32)), pictures()
    ids = GreyVAE().encode(images)
    none = torch.zeros_like(ids, dtype=torch.bool)
    assert torch.equal(model.base.generate_ids(["red"], ids=ids, made=none, **FAST), ids)


def test_rows_may_have_masks_of_different_sizes() -> None:
    model, images = base(32), pictures(2)
    ids = model.tokens_of(images)
    made = torch.zeros_like(ids, dtype=torch.bool)
    made[0, :1], made[1, :, :5] = True, True
    both = model.generate_ids(["a", "b"], ids=ids, made=made, seed=2, **FAST)
    alone = model.generate_ids(["b"], ids=ids[1:], made=made[1:], seed=3, **FAST)
    assert torch.equal(both[1:], alone)
    assert int(both.max()) < 16


def test_both_stages_edit() -> None:
    model, images = muse(), pictures(1)
    mask = torch.zeros(1, 32, 32, dtype=torch.bool)
    mask[:, :8, :8] = True
    made = model.generate(["red"], edit=inside(images, mask), **FAST)
    kept = model.superres.picture(model.superres.tokens_of(images))  # type: ignore[union-attr]
    assert torch.equal(made[..., 8:], kept[..., 8:])
    assert made.shape == images.shape


def test_a_picture_goes_on_beyond_its_edges() -> None:
    model, images = muse(), pictures()
    edit = around(images, right=16, top=8, factor=model.cell)
    assert edit.size == (40, 48)
    result = edit.laid(model.generate(["red"], edit=edit, **FAST))
    assert torch.equal(result[..., 8:, :32], images)
    with pytest.raises(UserError, match="multiples of 8"):
        around(images, right=12, factor=model.cell)
    with pytest.raises(UserError, match="Nothing is to be made"):
        around(images, factor=4)


def test_a_variation_keeps_a_share_of_the_tokens() -> None:
    images = pictures(2, 64)
    edit = varied(images, 0.25, factor=4, seeds=[1, 2])
    assert edit.mask.float().mean(dim=(1, 2)).tolist() == [0.25, 0.25]
    assert not torch.equal(edit.mask[0], edit.mask[1])
    assert torch.equal(edit.mask[1:], varied(images[1:], 0.25, factor=4, seeds=[2]).mask)
    with pytest.raises(UserError, match="over 0"):
        varied(images, 0.0, factor=4, seeds=[1, 2])


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(UserError, match="of the picture's size"):
        inside(pictures(), torch.zeros(1, 16, 16))
    ids = torch.zeros(1, 4, 4, dtype=torch.long)
    with pytest.raises(UserError, match="come with `made`"):
        base().generate(["a"], ids=ids)
    with pytest.raises(UserError, match=r"\(texts: 2, ids: 1\): give one of each"):
        base().generate(["a", "b"], ids=ids, made=ids.bool())


def test_a_model_with_text_makes_pictures_without_one() -> None:
    model = base()
    alone = model.generate_ids(batch_size=2, seed=3, **FAST)
    assert torch.equal(alone[1:], model.generate_ids(seed=4, **FAST))
    led = model.generate_ids(seed=3, cond_scale=9.0, **FAST)
    assert torch.equal(alone[:1], led)  # nothing leads
