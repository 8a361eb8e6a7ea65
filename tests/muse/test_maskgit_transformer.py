"""The transformer over tokens: its conditions, places, critics, and that every option does something."""

import socket
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from maskgit_toys import LEVELS, SMALL, critic, transformer

from madrigal.errors import UserError
from madrigal.muse.context import Lead, led
from madrigal.muse.maskgit_transformer import MaskGitTransformer, SelfCritic

IDS = torch.arange(24).remainder(LEVELS).view(1, 4, 6)


def test_any_shape_has_places_and_they_matter() -> None:
    net = transformer(text_encoder="none")
    out = net(IDS)
    assert out.shape == (1, 24, LEVELS)
    turned = net(IDS.transpose(1, 2).contiguous()).unflatten(1, (6, 4)).transpose(1, 2).flatten(1, 2)
    assert not torch.allclose(out, turned, atol=1e-4)
    same = torch.zeros(1, 4, 6, dtype=torch.long)
    assert net(same)[0].std(dim=0).max() > 1e-4  # equal tokens in other places


def test_MS23_a_row_of_ids_is_a_square_and_else_refused() -> None:
    net = transformer(text_encoder="none")
    assert torch.equal(net(IDS[:, :4, :4]), net(IDS[:, :4, :4].flatten(1)))
    with pytest.raises(UserError, match="no square grid"):
        net(IDS.flatten(1))


@pytest.mark.parametrize("kind", ["bytes", "classes", "embeds"])
def test_the_condition_changes_the_logits_and_guidance_leads(kind: str) -> None:
    more: dict[str, Any] = {"classes": {"num_classes": 3}, "embeds": {"cond_dim": 5}}.get(kind, {})
    net = transformer(text_encoder=kind, **more)
    given: list[dict[str, Any]] = {
        "bytes": [{"texts": ["red"]}, {"texts": ["blue"]}],
        "classes": [{"classes": [0]}, {"classes": [2]}],
        "embeds": [{"text_embeds": torch.ones(1, 2, 5)}, {"text_embeds": -torch.ones(1, 2, 5)}],
    }[kind]
    first, second = (net(IDS, **one) for one in given)
    assert not torch.allclose(first, second, atol=1e-5)
    without = net(IDS, **given[0], cond_drop_prob=1.0)
    torch.testing.assert_close(without, net(IDS, **given[1], cond_drop_prob=1.0))
    scaled = net.forward_with_cond_scale(IDS, cond_scale=3.0, **given[0])
    torch.testing.assert_close(scaled, without + 3 * (first - without), rtol=1e-4, atol=1e-5)


def test_MS17_negative_prompts_lead_away_for_transformer_and_critic() -> None:
    for net in (transformer(), critic()):
        red, blue = (net(IDS, texts=[word]) for word in ("red", "blue, much longer"))
        out = net.forward_with_neg_prompt(IDS, texts=["red"], negative_texts=["blue, much longer"], cond_scale=2.0)
        torch.testing.assert_close(out, blue + 2 * (red - blue), rtol=1e-4, atol=1e-5)


def test_MS22_the_self_critic_is_guided_too() -> None:
    net = transformer()
    judge = SelfCritic(net)
    context = judge.condition(texts=["red"])
    plain, led_far = (led(judge, IDS, Lead(context, None, scale))[0] for scale in (1.0, 4.0))
    assert plain.shape == (1, 24, 1)
    assert not torch.allclose(plain, led_far, atol=1e-5)
    assert [name for name, _ in judge.named_parameters()] == ["to_out.weight", "to_out.bias"]


def test_MS16_the_order_of_low_resolution_tokens_matters() -> None:
    net = transformer(num_cond_tokens=LEVELS)
    low = torch.arange(6).view(1, 2, 3)
    given: dict[str, Any] = {"texts": ["red"]}
    out = net(IDS, conditioning_token_ids=low, **given)
    moved = net(IDS, conditioning_token_ids=low.flip(2), **given)
    assert not torch.allclose(out, moved, atol=1e-4)
    with pytest.raises(UserError, match="low-resolution"):
        net(IDS, **given)


def test_MS19_attention_is_torchs_kernel_and_its_dropout_acts_in_training_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, dropouts = F.scaled_dot_product_attention, []

    def watched(*args: Any, **options: Any) -> torch.Tensor:
        dropouts.append(options["dropout_p"])
        return kernel(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    net = transformer(text_encoder="classes", num_classes=2, attn_dropout=0.5)
    calls = 2 * 2 * SMALL["depth"]  # twice, of the picture and of the condition, in each layer
    with torch.no_grad():
        assert torch.equal(*(net.eval()(IDS, classes=[1]) for _ in range(2)))
    assert dropouts == [0.0] * calls
    dropouts.clear()
    assert not torch.allclose(*(net.train()(IDS, classes=[1]) for _ in range(2)))
    assert dropouts == [0.5] * calls


def test_MS21_nothing_is_read_at_construction_and_text_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    net = MaskGitTransformer(**SMALL, seq_len=24, flash=True)
    assert net.config.text_encoder == "t5"
    assert net(IDS, text_embeds=torch.randn(1, 3, 768)).shape == (1, 24, LEVELS)
    alone = transformer(text_encoder="none")
    assert alone(IDS).shape == (1, 24, LEVELS)
    with pytest.raises(UserError, match="takes no texts"):
        alone(IDS, texts=["red"])


def test_padded_text_equals_unpadded() -> None:
    net = transformer()
    both = net(IDS.repeat(2, 1, 1), texts=["red", "a much longer text than that"])
    torch.testing.assert_close(both[:1], net(IDS, texts=["red"]), rtol=1e-4, atol=1e-5)


def test_self_conditioning_sees_what_was_made_before() -> None:
    net = transformer(self_cond=True)
    torch.nn.init.normal_(net.from_past[1].weight)
    out, embed = net(IDS, texts=["red"], return_embed=True)
    again = net(IDS, texts=["red"], self_cond_embed=embed)
    assert not torch.allclose(out, again, atol=1e-4)


def test_labels_give_the_loss_and_ignored_ones_do_not_count() -> None:
    net = transformer(text_encoder="none")
    labels = IDS.clone()
    labels[:, :2] = -1
    logits = net(IDS)
    wanted = torch.nn.functional.cross_entropy(logits[0, 12:], IDS.flatten()[12:])
    torch.testing.assert_close(net(IDS, labels=labels), wanted)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 48},
        {"depth": 3},
        {"heads": 4},
        {"dim_head": 8},
        {"ff_mult": 2},
        {"qk_norm": False},
        {"self_cond": True},
        {"num_tokens": 20},
        {"num_cond_tokens": 7},
    ],
)
def test_every_size_changes_the_model(change: dict[str, Any]) -> None:
    count = sum(p.numel() for p in transformer().parameters())
    assert sum(p.numel() for p in transformer(**change).parameters()) != count


@pytest.mark.parametrize("change", [{"attn_dropout": 0.5}, {"ff_dropout": 0.5}])
def test_dropout_drops_in_training_alone(change: dict[str, float]) -> None:
    net = transformer(text_encoder="none", **change)
    assert not torch.equal(net(IDS), net(IDS))
    net.eval()
    assert torch.equal(net(IDS), net(IDS))


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(UserError, match="seq_len is 16"):
        transformer(seq_len=16, text_encoder="none")(IDS)
    with pytest.raises(UserError, match="belong together"):
        transformer(text_encoder="classes")
    with pytest.raises(UserError, match="cond_dim is missing"):
        transformer(text_encoder="embeds")
    with pytest.raises(UserError, match="from 0 to 2"):
        transformer(text_encoder="classes", num_classes=3)(IDS, classes=[3])
    with pytest.raises(UserError, match="conditioned on texts or text_embeds"):
        transformer()(IDS)
