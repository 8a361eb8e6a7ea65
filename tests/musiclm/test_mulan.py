"""MuLaN itself: one space, options that act, batches in chunks, what is saved, and older scripts."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_mulans import PLAIN, SIZE, audio_side, caption, chord, gradients, mulan, pairs, text_side, trainer

import madrigal
from madrigal import MuLaN, TextTransformer, UserError, load_mulan
from madrigal.musiclm.mulan import spread_layers
from madrigal.tokenizers.text import TextSpec, fit_text, make_text_tokenizer
from madrigal.verbs.systems import load_recipe

WAVES = torch.stack([chord(number) for number in range(6)])
TEXTS = [caption(number) for number in range(6)]


def test_latents_have_unit_length_and_one_width() -> None:
    model = mulan().eval()
    audio, text = model.get_audio_latents(WAVES), model.get_text_latents(TEXTS)
    assert audio.shape == text.shape == (6, model.dim_latent)
    for latents in (audio, text):
        torch.testing.assert_close(latents.norm(dim=1), torch.ones(6))
    torch.testing.assert_close(model(WAVES, TEXTS, return_latents=True), (audio, text))
    every = model(WAVES, TEXTS, return_pairwise_similarities=True)
    torch.testing.assert_close(every, audio @ text.T)
    torch.testing.assert_close(model(WAVES, raw_texts=TEXTS, return_similarities=True), every.diagonal())


def test_a_caption_is_the_same_in_any_batch() -> None:
    """MU10's other half: nothing is cut to the shortest, and padding is seen by nobody."""
    model = mulan().eval()
    texts = ["a", "a long caption of many words", ""]
    together = model.get_text_latents(texts)
    alone = torch.cat([model.get_text_latents([text]) for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_ids_are_read_as_captions_are() -> None:
    model = mulan().eval()
    ids = torch.tensor([[97, 98, 0, -1], [97, 98, 99, 100]])
    torch.testing.assert_close(
        model.get_text_latents(ids), model.get_text_latents(["ab", "abcd"]), atol=1e-5, rtol=1e-4
    )
    with pytest.raises(UserError, match="300 is no id"):
        model.get_text_latents(torch.tensor([[300]]))


@pytest.mark.parametrize("options", [{}, {"sigmoid_contrastive_loss": True}, {"hierarchical_contrastive_loss": True}])
@pytest.mark.parametrize("augmented", [False, True])
def test_chunks_are_exact(options: dict[str, bool], augmented: bool) -> None:
    """Gradient caching: the loss and all gradients of the whole batch, chunk by chunk."""
    model = mulan({} if augmented else PLAIN, **options)
    found = []
    for size in (None, 2, 4):
        model.zero_grad()
        loss = model.contest(WAVES, TEXTS, seeds=torch.arange(6), augment=augmented, chunk_size=size).loss
        loss.backward()
        found.append((loss.detach(), gradients(model)))
    for loss, grads in found[1:]:
        torch.testing.assert_close(loss, found[0][0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(grads, found[0][1], atol=1e-4, rtol=1e-3)


def test_chunks_keep_only_one_chunk_for_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is encoded once without a graph and once more, in backward, with one."""
    model, calls = mulan(PLAIN), []
    encode = model.audio.encode

    def noted(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        calls.append(len(x))
        return encode(x, *args, **kwargs)

    monkeypatch.setattr(model.audio, "encode", noted)
    kept = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    sizes = []
    for chunk in (None, 2):
        kept = 0
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = model.contest(WAVES, TEXTS, augment=False, chunk_size=chunk).loss
        sizes.append(kept)
        calls.clear()
        loss.backward()
    assert calls == [2, 2, 2]
    assert sizes[1] < sizes[0] / 10  # latents and inputs alone


def test_dropout_is_the_same_when_a_chunk_is_encoded_again() -> None:
    model = mulan({**PLAIN, "ff_dropout": 0.3}, {"attn_dropout": 0.3})
    model.zero_grad()
    torch.manual_seed(3)
    loss = model.contest(WAVES, TEXTS, chunk_size=3).loss
    loss.backward()
    assert bool(gradients(model).isfinite().all())
    torch.manual_seed(3)
    assert float(model.contest(WAVES, TEXTS, chunk_size=3).loss.detach()) == float(loss.detach())


@pytest.mark.parametrize(
    "options",
    [
        {"decoupled_contrastive_learning": False},
        {"sigmoid_contrastive_loss": True},
        {"hierarchical_contrastive_loss": True},
        {"dim_latent": 8},
        {"init_temp": 20.0},
    ],
)
def test_every_option_of_mulan_changes_its_loss(options: dict[str, Any]) -> None:
    losses = [float(mulan(PLAIN, **more)(WAVES, TEXTS).detach()) for more in ({}, options)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("sigmoid", [False, True])
def test_max_temp_is_where_a_scale_that_grows_stops(sigmoid: bool) -> None:
    losses = []
    for start, highest in ((20.0, 20.0), (50.0, 20.0), (50.0, 100.0)):
        model = mulan(PLAIN, max_temp=highest, sigmoid_contrastive_loss=sigmoid)
        with torch.no_grad():
            model.contrast.temperatures.fill_(math.log(start))
        losses.append(float(model(WAVES, TEXTS).detach()))
    assert losses[0] == pytest.approx(losses[1])
    assert losses[1] != pytest.approx(losses[2])


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "mean"},
        {"max_seq_len": 3},
        {"tokenizer": {"kind": "characters"}},
        {"ff_mult": 2.0},
        {"num_tokens": 300},
    ],
)
def test_every_option_of_the_text_side_changes_its_vectors(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    plain = text_side().eval()(TEXTS)
    torch.manual_seed(0)
    assert not torch.equal(plain, text_side(**options).eval()(TEXTS))


def test_pad_id_says_what_is_padding() -> None:
    torch.manual_seed(0)
    model = text_side(pad_id=7).eval()
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(model(ids), model(ids[:, :2]))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"hierarchical_contrastive_loss_layers": 1}, "needs hierarchical_contrastive_loss"),
        ({"sigmoid_contrastive_loss": True, "decoupled_contrastive_learning": True}, "leave one out"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=why):
        mulan(**options)
    changes = [f"model.{name}={value}" for name, value in options.items()]
    with pytest.raises(UserError, match=why):
        load_recipe("mulan/tiny", [f"data={tmp_path}", *changes])


def test_a_default_is_no_option_that_somebody_has_given(tmp_path: Path) -> None:
    """Decoupled is the default, and a folder has all options."""
    model = mulan(sigmoid_contrastive_loss=True)
    assert load_mulan(model.save_pretrained(tmp_path)).config == model.config
    load_recipe("mulan/tiny", [f"data={tmp_path}", "model.sigmoid_contrastive_loss=true"])


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe"])
def test_ids_of_a_tokenizer_are_read_as_its_captions_are(kind: str, tmp_path: Path) -> None:
    """Id 0 among them: of the characters it is the space."""
    text = "a slow flute"
    spec = fit_text(TextSpec(kind=kind), [text] * 5)  # type: ignore[arg-type]
    model = mulan(text={"tokenizer": spec}).eval()
    ids = make_text_tokenizer(spec).encode(text)
    assert (0 in ids) == (kind == "characters")
    wanted = model.get_text_latents([text])
    torch.testing.assert_close(model.get_text_latents(torch.tensor([[*ids, -1, -1]])), wanted)
    again = load_mulan(model.save_pretrained(tmp_path))
    assert again.config == model.config
    assert again.fingerprint() == model.fingerprint()


def test_ids_of_one_s_own_are_padded_with_0_unless_told() -> None:
    model = TextTransformer(**SIZE, num_tokens=300).eval()
    ids = torch.tensor([[5, 6, 0]])
    torch.testing.assert_close(model(ids), model(ids[:, :2]))


@pytest.mark.parametrize(
    ("depth", "layers", "wanted"), [(6, 2, [1, 3]), (4, 3, [0, 1, 2]), (3, 3, [0, 1, 2]), (1, 1, [0])]
)
def test_MU15_any_number_of_layers_up_to_the_depth(depth: int, layers: int, wanted: list[int]) -> None:
    assert spread_layers(depth, layers) == wanted


@pytest.mark.parametrize(("depth", "layers"), [(2, 2), (1, None), (1, 1), (2, 1)])
def test_MU15_as_many_layers_as_there_are_or_one(depth: int, layers: int | None) -> None:
    options = {"hierarchical_contrastive_loss": True, "hierarchical_contrastive_loss_layers": layers}
    model = mulan({"depth": depth}, {"depth": depth}, **options)
    loss = model(WAVES, TEXTS)
    loss.backward()
    assert bool(loss.isfinite())


def test_MU15_more_layers_than_there_are_is_told() -> None:
    with pytest.raises(UserError, match="more than the 2 layers"):
        mulan(hierarchical_contrastive_loss=True, hierarchical_contrastive_loss_layers=3)


def test_what_was_saved_embeds_as_before(tmp_path: Path) -> None:
    model = mulan(hierarchical_contrastive_loss=True).eval()
    model.audio.mels.fit(list(WAVES))
    again = load_mulan(model.save_pretrained(tmp_path / "mulan"))
    assert torch.equal(again.get_audio_latents(WAVES), model.get_audio_latents(WAVES))
    assert torch.equal(again.get_text_latents(TEXTS), model.get_text_latents(TEXTS))
    assert again.fingerprint() == model.fingerprint()
    again.audio_to_latents.weight.data += 0.1
    assert again.fingerprint() != model.fingerprint()


def test_waves_and_texts_must_be_as_many() -> None:
    with pytest.raises(UserError, match="6 waves have 2 texts"):
        mulan()(WAVES, TEXTS[:2])
    with pytest.raises(UserError, match="either texts or raw_texts"):
        mulan()(WAVES)


def test_a_script_of_the_older_library_runs_with_other_imports() -> None:
    """Its README, with smaller numbers for layers alone."""
    audio_transformer = madrigal.AudioSpectrogramTransformer(
        dim=64, depth=1, heads=2, dim_head=32, spec_n_fft=128, spec_win_length=24, spec_aug_stretch_factor=0.8
    )
    text_transformer = madrigal.TextTransformer(dim=64, depth=1, heads=2, dim_head=32)
    model = madrigal.MuLaN(audio_transformer=audio_transformer, text_transformer=text_transformer)
    wavs = torch.randn(2, 1024)
    texts = torch.randint(0, 20000, (2, 256))
    loss = model(wavs, texts)
    loss.backward()
    assert model.get_audio_latents(wavs).shape == model.get_text_latents(texts).shape == (2, 128)
    assert isinstance(model, MuLaN)


def test_a_pretrained_sentence_encoder_is_frozen_or_tuned(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from madrigal.musiclm.sentence_encoder import SentenceConfig, SentenceEncoder

    folder = tmp_path / "bert"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "low", "high", *"abcdefgh"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    for tuned in (False, True):
        model = MuLaN(audio_side(**PLAIN), SentenceEncoder(SentenceConfig(name=str(folder), tuned=tuned)), dim_latent=8)
        model.eval()
        together = model.get_text_latents(["low a", "high b low c"])
        torch.testing.assert_close(together[:1], model.get_text_latents(["low a"]), atol=1e-5, rtol=1e-4)
        model(WAVES[:2], ["low a", "high b"]).backward()
        names = [name for name, _ in model.named_parameters() if name.startswith("text.")]
        assert bool(names) == tuned
        assert any(name.startswith("text.model") for name in model.state_dict()) == tuned
        again = load_mulan(model.save_pretrained(tmp_path / f"mulan-{tuned}"))
        torch.testing.assert_close(again.get_text_latents(["low a"]), together[:1], atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match="not ids"):
        model.get_text_latents(torch.ones(1, 2, dtype=torch.long))


def test_64_pairs_are_learned_by_heart(tmp_path: Path) -> None:
    """MU3, MU4: the loss leaves chance at once, and each finds its own."""
    data = pairs(64)
    made = trainer(tmp_path, mulan(PLAIN), data, val_dataset=data, num_train_steps=60, batch_size=64, lr=3e-3)
    for _ in range(60):
        made.train_step()
    found = made.validation()
    assert found["valid/audio_to_text/recall@1"] == found["valid/text_to_audio/recall@1"] == 1.0
    assert found["valid/loss"] < 0.25 * found["valid/chance"]
