"""Features and the model that learned them: normalised alike, fitted once, and never exchanged unnoticed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_flows import DIM, Halves, Rows, model, trainer
from voicebox_speaking import parts

from madrigal.errors import UserError
from madrigal.soundstream.codec import SoundStream
from madrigal.voicebox.codec_features import CodecFeatures
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.speech import VoiceboxSpeech
from madrigal.voicebox.training import VoiceBoxTrainer

WAVES: dict[str, Any] = {"dataset": Rows(kind="tuple")}


def test_features_that_were_never_fitted_are_fitted_once_and_kept_with_the_model(tmp_path: Path) -> None:
    run = trainer(tmp_path, tool=Halves(), **WAVES, num_train_steps=2).train()
    assert run.model.std.any()
    assert torch.equal(run.wrapper.features.mean, run.model.mean)
    again = ConditionalFlowMatcherWrapper(VoiceBox.from_pretrained(tmp_path), Halves())
    wave = torch.randn(1, 30)
    torch.testing.assert_close(again.heard(wave)[0], run.wrapper.heard(wave)[0])


def test_what_a_model_knows_is_not_fitted_anew(tmp_path: Path) -> None:
    known = model(fresh=True)
    known.mean.fill_(0.5)
    known.std.fill_(2.0)
    wrapper = ConditionalFlowMatcherWrapper(known, Halves())
    run = VoiceBoxTrainer(wrapper, **WAVES, num_train_steps=1, batch_size=2, results_folder=tmp_path)
    run.train()
    assert torch.equal(run.model.mean, torch.full((DIM,), 0.5))
    assert torch.equal(run.wrapper.features.std, torch.full((DIM,), 2.0))


def test_other_statistics_than_the_models_are_noticed() -> None:
    known = model()
    known.std.fill_(1.0)
    ConditionalFlowMatcherWrapper(known, Halves(level=0.0))
    with pytest.raises(UserError, match="not normalised as those that the model has learned"):
        ConditionalFlowMatcherWrapper(known, Halves(level=5.0))
    wrapper = ConditionalFlowMatcherWrapper(model(), Halves(level=5.0))  # nobody has told this model yet
    wrapper.voicebox.std.fill_(1.0)
    with pytest.raises(UserError, match="not normalised as those"):
        wrapper.heard(torch.zeros(1, 30))


@pytest.mark.parametrize("level", [0.0, None])
def test_a_run_goes_on_with_the_features_that_it_began_with(level: float | None, tmp_path: Path) -> None:
    first = Halves(level=level)
    trainer(tmp_path, tool=first, **WAVES, num_train_steps=2).train()
    trainer(tmp_path, tool=first, **WAVES, num_train_steps=2, resume=True)  # the same, fitted by now
    with pytest.raises(UserError, match="not normalised as those"):
        trainer(tmp_path, tool=Halves(level=5.0), **WAVES, num_train_steps=2, resume=True)
    with pytest.raises(UserError, match="another features"):
        trainer(tmp_path, tool=Halves("wholes", level), **WAVES, num_train_steps=2, resume=True)


def test_the_parts_of_a_voice_were_trained_for_each_other() -> None:
    made = parts()
    voicebox, heard = made.pop("voicebox"), made.pop("vocoder").features()
    voicebox.mean.copy_(heard.mean)
    voicebox.std.copy_(heard.std)
    VoiceboxSpeech(voicebox, features=heard, **made)
    voicebox.std.mul_(2)
    with pytest.raises(UserError, match="not normalised as those that the model has learned"):
        VoiceboxSpeech(voicebox, features=heard, **made)


def test_a_codecs_latents_are_learned_and_sound(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"strides": (2, 3), "channels": 2, "channel_mults": (2, 4)}
    sizes |= {"codebook_size": 16, "rq_num_quantizers": 2}

    def latents(seed: int = 0) -> CodecFeatures:
        torch.manual_seed(seed)
        codec = SoundStream(**sizes, codebook_dim=DIM, use_local_attn=False, discriminators=False)
        codec.quantizer.initialize(torch.randn(64, DIM))
        return CodecFeatures(codec)

    run = trainer(tmp_path, tool=latents(), **WAVES, num_train_steps=2).train()
    assert bool(run.wrapper.features.fitted)
    assert {path.name for path in (tmp_path / "samples").rglob("*.wav")} >= {"000-original.wav", "000-made.wav"}
    assert trainer(tmp_path, tool=latents(), **WAVES, num_train_steps=2, resume=True).step == 2
    with pytest.raises(UserError, match="another features"):
        trainer(tmp_path, tool=latents(1), **WAVES, num_train_steps=2, resume=True)
