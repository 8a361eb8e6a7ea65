"""Words of older scripts: translated where they have a meaning, refused in a sentence where they have none."""

from pathlib import Path
from typing import Any

import pytest
import torch
from stages import COARSE, CODES, FINE, SEMANTIC, STAGES, WRAPPERS, coarse_stage, fine_stage, semantic_stage, wrapped
from token_sets import make
from torch import Tensor

from madrigal.audiolm.packing import Stream
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling

IDS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


def codes(quantizers: int, frames: int = 4) -> Tensor:
    return torch.randint(0, CODES, (2, frames, quantizers), generator=torch.Generator().manual_seed(0))


def whole(ids: Tensor) -> Stream:
    return Stream(ids, torch.full((len(ids),), ids.shape[1]))


def test_sampling_is_taken_by_its_fields() -> None:
    wrapper = wrapped(semantic_stage())
    older = wrapper.generate(max_length=8, temperature=0.7, filter_thres=0.5, cond_scale=1.0, use_kv_cache=True)
    ours = wrapper.generate(max_length=8, sampling=Sampling(temperature=0.7, filter_thres=0.5))
    assert torch.equal(older.codes, ours.codes)
    with pytest.raises(UserError, match="a Sampling, or temperature, not both"):
        wrapper.generate(max_length=8, temperature=0.7, sampling=Sampling())
    with pytest.raises(UserError, match="temperature is -1"):
        wrapper.generate(max_length=8, temperature=-1)


@pytest.mark.parametrize("flat", [True, False])
def test_ids_are_taken_for_coarse_codes(flat: bool) -> None:
    wrapper, prompt = wrapped(coarse_stage()), codes(COARSE, 2)
    older = wrapper.generate(
        semantic_token_ids=IDS, prime_coarse_token_ids=prompt.flatten(1) if flat else prompt, max_time_steps=6
    )
    ours = wrapper.generate(semantic=whole(IDS[..., None]), prompt=whole(prompt), frames=6)
    assert torch.equal(older.codes, ours.codes)
    assert torch.equal(older.codes[:, :2], prompt)


def test_ids_are_taken_for_fine_codes() -> None:
    wrapper, coarse, prompt = wrapped(fine_stage()), codes(COARSE), codes(FINE, 2)
    older = wrapper.generate(coarse_token_ids=coarse.flatten(1), prime_fine_token_ids=prompt, reconstruct_wave=False)
    ours = wrapper.generate(coarse=whole(coarse), prompt=whole(prompt))
    assert torch.equal(older.codes, ours.codes)


def test_a_prompt_of_sound_is_heard_at_its_own_rate() -> None:
    class Hears:
        target_sample_hz, channels = 16000, 1

        def tokenize(self, audio: Tensor) -> Any:
            assert audio.shape == (2, 1, 320)
            return (IDS, torch.tensor([4, 4])) if self.kind == "semantic" else codes(COARSE + FINE, 2)

        def __init__(self, kind: str) -> None:
            self.kind = kind

    given = {
        "semantic": {"max_length": 6},
        "coarse": {"semantic_token_ids": IDS, "max_time_steps": 4},
        "fine": {"coarse_token_ids": codes(COARSE)},
    }
    begins = {"semantic": IDS[..., None], "coarse": codes(COARSE + FINE, 2)[..., :COARSE]}
    begins["fine"] = codes(COARSE + FINE, 2)[..., COARSE:]
    for name, options in given.items():
        stage = STAGES[name](**({} if name == "fine" else {"unique_consecutive": False}))
        wrapper = WRAPPERS[type(stage)](transformer=stage, wav2vec=Hears("semantic"), codec=Hears("codec"))
        drawn = wrapper.generate(prime_wave=torch.randn(2, 160), prime_wave_input_sample_hz=8000, **options)
        assert torch.equal(drawn.codes[:, : begins[name].shape[1]], begins[name])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"use_kv_cache": False}, "keys and values are always kept"),
        ({"include_eos_in_output": True}, "a row ends where its -1 begin"),
        ({"reconstruct_wave": True}, "decode_from_codebook_indices"),
        ({"mask_out_generated_fine_tokens": True}, "call AudioLM"),
        ({"max_lenght": 4}, "did you mean max_length"),
    ],
)
def test_what_a_generation_cannot_do_is_refused(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        wrapped(semantic_stage()).generate(**{"max_length": 4, **words})


def test_a_wrapper_takes_what_its_stage_decides() -> None:
    stage = coarse_stage()
    kind = WRAPPERS[type(stage)]
    wrapper = kind(
        transformer=stage, pad_id=-1, unique_consecutive=True, mask_prob=0.15, semantic_cross_entropy_loss_weight=0.25
    )
    losses = wrapper.losses(wrapper_batch(), training=False)
    given = {"semantic_token_ids": IDS, "coarse_token_ids": codes(COARSE, 8), "return_loss": True}
    torch.testing.assert_close(wrapper(**given), 0.25 * losses["semantic"] + losses["coarse"])
    for words, sentence in (
        ({"pad_id": 0}, "padding is always -1"),
        ({"unique_consecutive": False}, "build the stage with unique_consecutive=False"),
        ({"mask_prob": 0.5}, "build the stage with mask_prob=0.5"),
        ({"masks": 1}, "has no option masks"),
    ):
        with pytest.raises(UserError, match=sentence):
            kind(transformer=stage, **words)


def wrapper_batch() -> dict[str, Tensor]:
    lengths = {"semantic_lengths": torch.tensor([4, 4]), "acoustic_lengths": torch.tensor([8, 8])}
    return {"semantic": IDS, "acoustic": codes(COARSE, 8), **lengths}


def test_ids_of_both_fine_and_coarse_make_a_batch() -> None:
    wrapper, both = wrapped(fine_stage()), codes(COARSE + FINE)
    apart = wrapper(coarse_token_ids=both[..., :COARSE], fine_token_ids=both[..., COARSE:])
    assert apart == wrapper(token_ids=both) == wrapper(acoustic=both)


def test_a_stage_takes_the_words_that_choose_nothing() -> None:
    assert coarse_stage(project_semantic_logits=True).config.num_semantic_tokens == SEMANTIC
    fine_stage(project_coarse_logits=True, pad_id=-1)
    with pytest.raises(UserError, match="train with semantic_cross_entropy_loss_weight=0"):
        coarse_stage(project_semantic_logits=False)
    with pytest.raises(UserError, match="padding is always -1"):
        fine_stage(pad_id=0)


def test_AT25_normalising_is_not_promised(tmp_path: Path) -> None:
    make("fine", tmp_path / "plain", dataset_normalize=False)
    with pytest.raises(UserError, match="recordings are heard as they are: normalise them before"):
        make("fine", tmp_path / "normal", dataset_normalize=True)
