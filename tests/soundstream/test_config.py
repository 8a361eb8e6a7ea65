"""The options of a codec: the known defaults, and a sentence for what cannot be."""

import pytest
from pydantic import ValidationError

from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.config import DEFAULT_LOSS_WEIGHTS, SoundStreamConfig

SEED_DEFAULTS = {
    "channels": 32,
    "strides": (2, 4, 5, 8),
    "channel_mults": (2, 4, 8, 16),
    "codebook_dim": 512,
    "codebook_size": None,
    "finite_scalar_quantizer_levels": None,
    "rq_num_quantizers": 8,
    "rq_commitment_weight": 1.0,
    "rq_ema_decay": 0.95,
    "rq_quantize_dropout_multiple_of": 1,
    "rq_groups": 1,
    "rq_stochastic_sample_codes": False,
    "rq_rotation_trick": True,
    "rq_kwargs": {},
    "use_lookup_free_quantizer": False,
    "use_finite_scalar_quantizer": False,
    "input_channels": 1,
    "discr_multi_scales": (1, 0.5, 0.25),
    "stft_normalized": False,
    "enc_cycle_dilations": (1, 3, 9),
    "dec_cycle_dilations": (1, 3, 9),
    "multi_spectral_window_powers_of_two": (6, 7, 8, 9, 10, 11),
    "multi_spectral_n_ffts": 512,
    "multi_spectral_n_mels": 64,
    "quantize_dropout_cutoff_index": 1,
    "target_sample_hz": 16000,
    "use_local_attn": True,
    "attn_window_size": 128,
    "attn_dim_head": 64,
    "attn_heads": 8,
    "attn_depth": 1,
    "attn_xpos_scale_base": None,
    "attn_dynamic_pos_bias": False,
    "use_gate_loop_layers": False,
    "squeeze_excite": False,
    "complex_stft_discr_logits_abs": True,
    "complex_stft_discr_kwargs": {},
}


def test_options_of_older_scripts_keep_their_names_and_defaults() -> None:
    config = SoundStreamConfig()
    assert {name: getattr(config, name) for name in SEED_DEFAULTS} == SEED_DEFAULTS


def test_older_names_of_weights_fill_the_dict() -> None:
    given = SoundStreamConfig(
        recon_loss_weight=2, multi_spectral_recon_loss_weight=3, adversarial_loss_weight=4, feature_loss_weight=5
    )
    assert given.loss_weights == {**DEFAULT_LOSS_WEIGHTS, "waveform": 2, "mel": 3, "adversarial": 4, "feature": 5}
    assert SoundStreamConfig(loss_weights={"stft": 1}).loss_weights == {**DEFAULT_LOSS_WEIGHTS, "stft": 1}


def test_AM28_a_config_is_plain_text() -> None:
    config = SoundStreamConfig(strides=(2, 4), channel_mults=(2, 4), loss_weights={"mel": 3})
    assert SoundStreamConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pad_mode": "reflect"}, "could not stream; use 'constant' or 'replicate'"),
        ({"strides": (2, 4, 5)}, "each stride needs its channel multiplier"),
        ({"strides": (), "channel_mults": ()}, "at least one"),
        ({"use_lookup_free_quantizer": True, "codebook_size": 1000}, "power of two"),
        ({"use_finite_scalar_quantizer": True}, "go together"),
        ({"finite_scalar_quantizer_levels": (8, 5, 5, 5)}, "go together"),
        ({"use_finite_scalar_quantizer": True, "use_lookup_free_quantizer": True}, "not both"),
        ({"rq_groups": 3}, "cannot be split into 3 groups"),
        ({"spectral_n_fft": 100}, "at least the hop"),
        ({"discr_multi_scales": (1, 0.7)}, "1 over whole numbers"),
        ({"multi_spectral_n_mels": (64, 32)}, "give one each"),
        ({"loss_weights": {"mle": 1}}, "did you mean 'mel'"),
        ({"loss_weights": {"mel": 1}, "multi_spectral_recon_loss_weight": 2}, "give one of them"),
        ({"complex_stft_discr_kwargs": {"chanels": 3}}, "chan"),
        ({"complex_stft_discr_kwargs": {"n_fft": 100}}, "do not divide"),
        ({"rq_kwargs": {"colour": "red"}}, "colour"),
        ({"channels": 0}, "greater than or equal to 1"),
        ({"input_channels": 8}, "1 or 2"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        SoundStream(**{"channels": 2, "codebook_dim": 16, **options})


def test_codebook_size_follows_from_the_quantizer() -> None:
    assert SoundStreamConfig().num_codes == 1024
    levels = SoundStreamConfig(use_finite_scalar_quantizer=True, finite_scalar_quantizer_levels=(8, 5, 5))
    assert levels.num_codes == 200
    assert levels.quantizer_kind == "fsq"


def test_unknown_options_are_refused_and_nothing_can_be_changed_later() -> None:
    with pytest.raises(UserError, match="did you mean channels"):
        SoundStream(chanels=3)
    with pytest.raises(ValidationError, match="frozen"):
        SoundStreamConfig().channels = 3  # type: ignore[misc]
