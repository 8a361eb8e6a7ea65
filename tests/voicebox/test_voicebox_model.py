"""The model: what goes in matters, padding does not, and every option does something."""

from typing import Any

import pytest
import torch
from voicebox_flows import DIM, IDS, TEXT, features, ids, model

from madrigal.errors import UserError
from madrigal.voicebox.model import VoiceBox

TIMES = torch.tensor([0.2, 0.7])


def given(frames: int = 9) -> dict[str, Any]:
    known = torch.arange(frames).expand(2, -1) < 4
    return {"context": features(2, frames, 1), "context_mask": known, "ids": ids(2, frames)}


@pytest.mark.parametrize("frames_per_token", [1, 2, 3])
@pytest.mark.parametrize("voice_dim", [0, 4])
def test_VB15_a_padded_row_equals_the_same_row_alone(voice_dim: int, frames_per_token: int) -> None:
    made, x, told = model(voice_dim=voice_dim, frames_per_token=frames_per_token), features(2, 9), given()
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    together = made(x, times=TIMES, mask=mask, **told)
    alone = made(x[1:, :5], times=TIMES[1:], **{name: value[1:, :5] for name, value in told.items()})
    torch.testing.assert_close(together[1:, :5], alone, rtol=1e-4, atol=1e-5)


def test_frames_that_are_taken_as_one_are_still_told_apart() -> None:
    made, x = model(frames_per_token=3), features(1, 7)
    assert [made(x[:, :frames], times=0.5).shape[1] for frames in (1, 3, 7)] == [1, 3, 7]
    for frame in range(7):
        changed = x.clone()
        changed[:, frame] += 1
        assert not torch.allclose(made(changed, times=0.5)[0, frame], made(x, times=0.5)[0, frame], atol=1e-3)


@pytest.mark.parametrize("what", ["x", "times", "context", "context_mask", "ids"])
def test_all_that_is_given_matters(what: str) -> None:
    made, told = model(), {"x": features(2, 9), "times": TIMES, **given()}
    x = told.pop("x")
    plain = made(x, **told)
    if what == "x":
        x = x + 1
    elif what == "context_mask":
        told[what] = ~told[what]
    else:
        told[what] = told[what] * 0.5 if what != "ids" else (told[what] + 1) % IDS
    assert not torch.allclose(made(x, **told), plain, atol=1e-3)


def test_what_is_not_given_of_a_context_is_not_seen() -> None:
    made, told = model(voice_dim=4), given()
    plain = made(features(2, 9), times=0.5, **told)
    told["context"] = torch.where(told["context_mask"][..., None], told["context"], 100.0)
    torch.testing.assert_close(made(features(2, 9), times=0.5, **told), plain)


def test_a_given_frame_of_zeros_is_not_a_frame_to_be_made() -> None:
    made, nothing = model(), torch.zeros(2, 9, DIM)
    mask = torch.ones(2, 9, dtype=torch.bool)
    told = made(features(2, 9), times=0.5, context=nothing, context_mask=mask)
    assert not torch.allclose(told, made(features(2, 9), times=0.5), atol=1e-3)


@pytest.mark.parametrize("voice_dim", [0, 4])
def test_a_dropped_condition_is_no_condition(voice_dim: int) -> None:
    made, told = model(voice_dim=voice_dim), given()
    rows = torch.tensor([True, False])
    found = made(features(2, 9), times=0.5, **told, drop_context=rows, drop_ids=rows)
    nothing, plain = made(features(2, 9), times=0.5), made(features(2, 9), times=0.5, **told)
    torch.testing.assert_close(found[0], nothing[0])
    torch.testing.assert_close(found[1], plain[1])
    assert not torch.allclose(nothing[0], plain[0], atol=1e-3)


def test_VB4_an_unknown_id_has_a_row_of_its_own() -> None:
    made, told = model(), given()
    told["ids"][1, 3:] = -1
    made(features(2, 9), times=0.5, **told)
    unknown = made(features(2, 9), times=0.5, ids=torch.full((2, 9), -1))
    torch.testing.assert_close(unknown, made(features(2, 9), times=0.5))
    for one in range(IDS):
        assert not torch.allclose(unknown, made(features(2, 9), times=0.5, ids=torch.full((2, 9), one)), atol=1e-3)


@pytest.mark.parametrize("wrong", [IDS, -2])
def test_foreign_ids_are_refused(wrong: int) -> None:
    with pytest.raises(UserError, match=f"hold {wrong}, and this model knows ids from 0 to {IDS - 1}"):
        model()(features(1, 3), times=0.5, ids=torch.full((1, 3), wrong))


def test_VB17_ids_are_looked_up_frame_by_frame() -> None:
    made = model(depth=1)
    hidden = made.condition((1, 4), ids=torch.tensor([[0, 0, 1, 1]])).frames[0]
    assert torch.equal(hidden[0], hidden[1])
    assert torch.equal(hidden[2], hidden[3])
    with pytest.raises(UserError, match="each frame an id"):
        made(features(1, 4), times=0.5, ids=torch.tensor([[0, 1]]))


@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
def test_guidance_is_one_batch_of_two(scale: float) -> None:
    made, x, told = model(), features(2, 9), given()
    with_, without = made(x, times=TIMES, **told), made(x, times=TIMES)
    found = made.forward_with_cond_scale(x, times=TIMES, cond_scale=scale, **told)
    torch.testing.assert_close(found, without + scale * (with_ - without), rtol=1e-4, atol=1e-4)


def test_VB5_a_model_without_ids_works_and_takes_none() -> None:
    made, told = model(condition_on_text=False), given()
    said = told.pop("ids")
    rows = torch.tensor([True, False])
    assert made(features(2, 9), times=0.5, **told, drop_context=rows, drop_ids=rows).shape == (2, 9, DIM)
    with pytest.raises(UserError, match="takes no ids"):
        made(features(2, 9), times=0.5, ids=said)


def test_the_voice_of_the_given_frames_reaches_all_others() -> None:
    made, told = model(voice_dim=4, seed=3), given()
    vectors = made.condition((2, 9), **told).voice
    assert vectors is not None
    assert not torch.allclose(vectors[0], vectors[1], atol=1e-4)
    assert torch.equal(made.condition((2, 9)).voice, made.voice.nobody.expand(2, -1))  # type: ignore[arg-type, union-attr]


CHANGED: list[dict[str, Any]] = [
    {"dim": 32},
    {"depth": 4},
    {"heads": 1},
    {"dim_head": 4},
    {"ff_mult": 2},
    {"time_hidden_dim": 8},
    {"conv_pos_embed_kernel_size": 3},
    {"num_register_tokens": 0},
    {"dim_cond_emb": 4},
    {"voice_dim": 4},
    {"attn_qk_norm": False},
    {"use_unet_skips": False},
    {"frames_per_token": 2},
]


@pytest.mark.parametrize("changed", CHANGED, ids=lambda changed: next(iter(changed)))
def test_VB11_every_size_changes_the_model(changed: dict[str, Any]) -> None:
    plain, other = model(), model(**changed)
    assert sum(p.numel() for p in plain.parameters()) != sum(p.numel() for p in other.parameters())
    found = other(features(2, 9), times=0.5, **given())
    assert found.shape == (2, 9, DIM)
    # What is built is used. (A row that nothing is given of would be: nobody's voice.)
    found.square().sum().backward()
    unused = {name for name, p in other.named_parameters() if p.numel() and (p.grad is None or not p.grad.any())}
    assert unused <= {"voice.nobody"}


def test_a_config_and_options_are_one_config() -> None:
    made = VoiceBox(model().config, depth=4, audio_enc_dec="there")
    assert made.config.depth == len(made.transformer.layers) == 4
    assert made.config.dim_in == DIM
    assert made.audio_enc_dec == "there"
    with pytest.raises(UserError, match="nonsense"):
        VoiceBox(model().config, nonsense=3)


@pytest.mark.parametrize("option", [{"ids_drop_prob": 0.2}, {"text_drop_prob": 0.2}, {"dim_cond_emb": 8}, TEXT])
def test_a_model_without_ids_has_no_options_of_them(option: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(option))} says something of ids"):
        model(condition_on_text=False, **option)


def test_a_new_model_finds_no_flow_and_its_parts_get_gradients() -> None:
    made = model(fresh=True, voice_dim=4)
    assert not made(features(2, 9), times=0.5, **given()).any()
    torch.nn.init.normal_(made.to_flow.weight)
    made(features(2, 9), times=0.5, **given()).square().sum().backward()
    # What adapts begins as the identity, so nothing reaches the time through it in the very first step.
    still = {name for name, p in made.named_parameters() if p.grad is None or not p.grad.any()}
    assert all(name.startswith(("time.", "voice.")) for name in still), still


def test_a_saved_model_comes_back(tmp_path: Any) -> None:
    made = model(voice_dim=4)
    made.save_pretrained(tmp_path)
    again = VoiceBox.from_pretrained(tmp_path)
    assert again.config == made.config
    assert torch.equal(again(features(2, 9), times=0.5, **given()), made(features(2, 9), times=0.5, **given()))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"frac_lengths_mask": (0.9, 0.5)}, "frac_lengths_mask"),
        ({"conv_pos_embed_kernel_size": 4}, "odd number"),
        ({"num_cond_tokens": None}, "num_cond_tokens is missing"),
        ({"use_gateloop_layers": True}, "attention alone"),
        ({"depht": 2}, "depth"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        model(**options)
