"""The quantizer of the joint embedding: codes of sounds and texts, and a table for each stage."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from small_music import CAPTIONS, small_mulan, small_quantizer, tones

import madrigal
from madrigal.errors import UserError
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer
from madrigal.musiclm.windows import window_starts


def test_its_public_name_and_the_words_of_older_scripts() -> None:
    assert madrigal.MuLaNEmbedQuantizer is MuLaNEmbedQuantizer
    made = madrigal.MuLaNEmbedQuantizer(
        mulan=small_mulan(),
        conditioning_dims=(8, 8),
        rq_num_quantizers=2,
        rq_ema_decay=0.8,
        codebook_size=4,
        namespaces=("semantic", "coarse"),
    )
    assert list(made.tables) == ["semantic", "coarse"]
    assert made.rq.ema_decay == 0.8


def test_MU1_every_namespace_has_a_table_of_its_own() -> None:
    made = small_quantizer()
    found = {name: made(texts=list(CAPTIONS), namespace=name) for name in ("semantic", "coarse", "fine")}
    assert [tuple(one.shape) for one in found.values()] == [(3, 3, 16), (3, 3, 12), (3, 3, 20)]
    ids = made.ids_of(texts=list(CAPTIONS))
    for name, one in found.items():
        assert torch.equal(one, made(ids=ids, namespace=name))


def test_MU1_no_namespace_is_refused_and_not_taken_for_the_first() -> None:
    made = small_quantizer()
    with pytest.raises(UserError, match="semantic, coarse, fine"):
        made(texts=["a hum"])
    with pytest.raises(UserError, match="'melody'"):
        made(texts=["a hum"], namespace="melody")
    made.set_default_namespace("coarse")
    assert made(texts=["a hum"]).shape == (1, 3, 12)


def test_MU2_without_codes_it_says_so() -> None:
    with pytest.raises(UserError, match="train it with"):
        MuLaNEmbedQuantizer(small_mulan(), 8)(texts=["a hum"], namespace="fine")


def test_MU14_parameters_are_listed_as_of_any_module() -> None:
    made = small_quantizer()
    assert {id(p) for p in made.parameters(recurse=True)} == {id(p) for _, p in made.named_parameters()}
    assert list(made.parameters(recurse=False)) == []
    learned = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith(("mulan.", "rq.")) for name in learned)


def test_a_batch_is_its_rows() -> None:
    made, waves = small_quantizer(), tones(4)
    together = made.ids_of(wavs=waves)
    assert torch.equal(together, torch.cat([made.ids_of(wavs=wave[None]) for wave in waves]))
    assert len({tuple(row) for row in together.tolist()}) > 1


def test_one_thing_at_a_time() -> None:
    made = small_quantizer()
    for given in ({}, {"wavs": tones(1), "texts": ["a hum"]}):
        with pytest.raises(UserError, match="one thing"):
            made(**given, namespace="fine")  # type: ignore[arg-type]


def test_sounds_and_texts_are_each_coded_around_their_own_centre() -> None:
    made, plain = small_quantizer(), small_quantizer(center=False)
    texts = made.mulan.get_text_latents(list(CAPTIONS))
    assert float(made.placed(texts, text=True).mean(0).norm()) < float(made.placed(texts).mean(0).norm())
    assert torch.equal(plain.placed(texts), texts)


def test_a_stage_learns_its_own_table_and_nothing_else() -> None:
    made = small_quantizer()
    own = made.for_stage("coarse")
    assert {name for name, p in own.named_parameters() if p.requires_grad} == {"tables.coarse.weight"}
    assert own.mulan is made.mulan
    assert own.tables["coarse"].weight.data_ptr() != made.tables["coarse"].weight.data_ptr()
    copy = deepcopy(own)
    assert copy.mulan is made.mulan
    assert torch.equal(copy(ids=torch.zeros(1, 3, dtype=torch.long)), own(ids=torch.zeros(1, 3, dtype=torch.long)))


def test_windows_cover_a_recording_second_by_second() -> None:
    assert window_starts(35, 10, 2.0) == ([0, 10, 15, 15], 20)
    assert window_starts(8, 10, 2.0) == ([0], 8)


def test_codes_of_a_recording_are_those_of_its_windows() -> None:
    made, wave = small_quantizer(window_seconds=1.0), tones(2).reshape(1, -1)
    codes = made.tokenize(wave[None])
    assert codes.shape == (1, 2, 3)
    assert torch.equal(codes[0], made.ids_of(wavs=wave.reshape(2, -1)))


def test_MU2_it_is_saved_with_codes_and_tables_and_without_the_mulan(tmp_path: Path) -> None:
    made = small_quantizer()
    made.mulan.save_pretrained(tmp_path / "mulan")
    made.save_pretrained(tmp_path / "quantizer")
    again = MuLaNEmbedQuantizer.from_pretrained(tmp_path / "quantizer")
    assert again.fingerprint() == made.fingerprint()
    for name in made.tables:
        assert torch.equal(again(texts=list(CAPTIONS), namespace=name), made(texts=list(CAPTIONS), namespace=name))
    assert not any(name.startswith("mulan.") for name in made.exported())


def test_codes_follow_from_the_mulan_too() -> None:
    one, other = small_quantizer(small_mulan(0)), small_quantizer(small_mulan(5))
    assert one.fingerprint() != other.fingerprint()
    before = one.fingerprint()
    one.tables["fine"].weight.data.zero_()  # type: ignore[union-attr,operator]
    assert one.fingerprint() == before


def test_another_mulan_is_refused(tmp_path: Path) -> None:
    made = small_quantizer()
    made.save_pretrained(tmp_path / "quantizer")
    with pytest.raises(UserError, match="does not say what its MuLaN is"):
        MuLaNEmbedQuantizer.from_pretrained(tmp_path / "quantizer")
    wide = small_mulan()
    wide.dim_latent = 9
    with pytest.raises(UserError, match="width 8"):
        MuLaNEmbedQuantizer.from_pretrained(tmp_path / "quantizer", mulan=wide)


def test_codes_are_the_same_while_it_is_trained() -> None:
    """Dropout in its MuLaN is for the MuLaN's own training."""
    made = small_quantizer(small_mulan(ff_dropout=0.4, attn_dropout=0.4))
    codes = made.ids_of(wavs=tones(8))
    assert made.train().training
    assert made.tables.training
    assert torch.equal(made.ids_of(wavs=tones(8)), codes)
