"""The codec's trainer: what it does beyond the engine's loop."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import on_two_ranks
from safetensors.torch import load_file
from torch.utils.data import DataLoader

import madrigal
from madrigal import SoundStream, SoundStreamTrainer, UserError

SCRIPT = Path(__file__).parent / "train_on_ranks.py"

SPECTRAL = {
    "codebook_size": 32,
    "rq_num_quantizers": 4,
    "frontend": "stft",
    "head": "istft",
    "spectral_dim": 32,
    "spectral_depth": 2,
    "codebook_dim": 16,
    "use_local_attn": False,
    "discr_multi_scales": (),
    "use_complex_stft_discr": False,
    "discr_spectrogram_n_ffts": (256,),
    "discr_spectrogram_channels": 4,
    "mel_loss": "log",
    "loss_weights": {"waveform": 0.0, "mel": 1.0, "adversarial": 0.1, "feature": 0.5},
}


def codec(**options: Any) -> SoundStream:
    torch.manual_seed(0)
    return SoundStream(**{**SPECTRAL, **options})


def make(recordings: Path, out: Path, model: SoundStream | None = None, **options: Any) -> SoundStreamTrainer:
    plan = {"batch_size": 2, "num_train_steps": 4, "grad_accum_every": 1, "warmup_steps": 0, "num_samples": 2}
    given = "dataset" in options or "train_dataloader" in options
    data = {} if given else {"folder": recordings, "data_max_length_seconds": 0.5}
    return SoundStreamTrainer(model or codec(), results_folder=out, **{**plan, **data, **options})


def figures(run: Path) -> list[dict[str, float]]:
    ignored = ("time", "audio s/s", "matmul_share")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ignored} for line in lines]


@pytest.mark.slow
def test_AT9_AT14_two_ranks_equal_one_with_twice_the_accumulation(recordings: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, SCRIPT, recordings, one, "2"], env=environment, check=True, capture_output=True)
    on_two_ranks(SCRIPT, recordings, two, "1")

    ranks = [load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1)]
    alone = load_file(one / "rank-0.safetensors")
    for name, tensor in ranks[0].items():
        assert torch.equal(tensor, ranks[1][name]), name
        torch.testing.assert_close(tensor, alone[name], rtol=1e-4, atol=1e-5)
    left, right = figures(one), figures(two)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-5), name


def test_26_a_codec_overfits_one_batch(recordings: Path, tmp_path: Path) -> None:
    """Eight whole recordings, all of them in every step; the noise in them keeps the loss from going to zero."""
    options = {"valid_frac": 0.0, "lr": 3e-3, "num_train_steps": 50, "batch_size": 8, "discr_start_step": 1000}
    trainer = make(recordings, tmp_path / "run", data_max_length_seconds=None, **options)
    values = [trainer.train_step()["generator/mel"] for _ in range(50)]
    assert sum(values[-5:]) / 5 < 0.55 * values[0]


def test_AT11_statistics_move_once_a_step_and_never_in_a_discriminators_turn(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", grad_accum_every=3)
    commits: list[bool] = []
    collected: list[bool] = []
    quantizer = trainer.model.quantizer
    commit, forward = quantizer.commit, quantizer.forward

    def counting_forward(*args: Any, collect: bool = False, **kwargs: Any) -> Any:
        collected.append(collect)
        return forward(*args, collect=collect, **kwargs)

    quantizer.commit = lambda *a, **k: (commits.append(True), commit(*a, **k))[1]
    quantizer.forward = counting_forward
    trainer.train_step()
    assert len(commits) == 1
    assert collected == [True] * 3, "the discriminators judge what the generator's turn made"


def test_discriminators_that_draw_their_own_batches_build_no_generator_graph(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", discr_share_batch=False)
    modes: list[tuple[bool, bool]] = []
    autoencode = trainer.model.autoencode

    def watched(*args: Any, collect: bool, **kwargs: Any) -> Any:
        modes.append((torch.is_grad_enabled(), collect))
        return autoencode(*args, collect=collect, **kwargs)

    trainer.model.autoencode = watched  # type: ignore[method-assign]
    trainer.train_step()
    assert modes == [(True, True), (False, False)]


def test_AT10_the_generators_clip_norm_knows_nothing_of_the_discriminators(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run")
    names = {turn.name: set(turn.parameters) for turn in trainer.turn_states}
    assert not any(name.startswith("discriminators.") for name in names["generator"])
    assert all(name.startswith("discriminators.") for name in names["discriminator/spectrogram_256"])
    trainer.train_step()
    assert all(p.requires_grad for turn in trainer.turn_states for p in turn.trainable)


def test_discriminators_start_after_their_warm_up(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", discr_start_step=2)
    taken = ["discriminator/spectrogram_256/hinge" in trainer.train_step() for _ in range(4)]
    assert taken == [False, False, True, True]


def test_the_penalty_comes_every_nth_step_and_never_with_zero(recordings: Path, tmp_path: Path) -> None:
    name = "discriminator/spectrogram_256/penalty"
    trainer = make(recordings, tmp_path / "some", apply_grad_penalty_every=2)
    assert [name in trainer.train_step() for _ in range(4)] == [True, False, True, False]
    trainer = make(recordings, tmp_path / "none", apply_grad_penalty_every=0)
    assert not any(name in trainer.train_step() for _ in range(3))


def test_AT8_samples_hold_each_item_original_online_and_averaged(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", valid_frac=0.4, save_results_every=4)
    trainer.train()
    names = sorted(path.name for path in (tmp_path / "run/samples/step-00000004").iterdir())
    kinds = ["original.wav", "reconstruction-ema.wav", "reconstruction.wav"]
    assert names == [f"{number:03d}-{kind}" for number in range(2) for kind in kinds]


def test_AT4_tokenize_uses_the_average_and_leaves_the_codec_alone(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", ema_update_after_step=1, ema_update_every=1, ema_beta=0.5, lr=5e-2)
    for _ in range(4):
        trainer.train_step()
    mode = trainer.model.training
    audio = 0.1 * torch.randn(1, 6400)
    codes = trainer.tokenize(audio)
    assert codes.shape == (1, 20, 4)
    assert trainer.model.training == mode
    assert not torch.equal(codes, trainer.model.tokenize(audio))


def test_AT5_the_model_becomes_the_average_and_not_the_other_way_round(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", ema_update_after_step=1, ema_update_every=1, ema_beta=0.5)
    for _ in range(3):
        trainer.train_step()
    assert trainer.ema is not None
    average = {name: tensor.clone() for name, tensor in trainer.ema.state_dict().items()}
    trainer.set_model_as_ema_model_()
    for name, tensor in trainer.model.state_dict().items():
        if name in average:
            assert torch.equal(tensor, average[name]), name


def test_AT7_a_given_validation_set_is_the_one_that_is_used(recordings: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    class Marked(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> torch.Tensor:
            seen.append(index)
            return 0.1 * torch.ones(3200)

    train = [0.1 * torch.randn(3200) for _ in range(6)]
    trainer = make(recordings, tmp_path / "run", dataset=train, val_dataset=Marked(), use_ema=False)
    trainer.validation()
    assert sorted(seen) == [0, 1, 2]


def test_AT26_AM28_a_run_rebuilds_its_codec_without_pickle(recordings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = make(recordings, run, num_train_steps=2)
    trainer.train()
    assert trainer.ema is not None
    rebuilt = SoundStream.from_pretrained(run)
    assert rebuilt.config == trainer.model.config
    for name, tensor in trainer.ema.state_dict().items():
        assert torch.equal(rebuilt.state_dict()[name], tensor), name
    online = SoundStream.init_and_load_from(run / "checkpoints/step-00000002")
    assert online.config == trainer.model.config
    suffixes = {path.suffix for path in run.rglob("*") if path.is_file()}
    assert suffixes <= {".json", ".jsonl", ".yaml", ".safetensors", ".wav"}


def test_given_loaders_are_accepted(recordings: Path, tmp_path: Path) -> None:
    waves = [0.1 * torch.randn(3200) for _ in range(6)]
    trainer = make(
        recordings, tmp_path / "run", train_dataloader=DataLoader(waves, 2), val_dataloader=DataLoader(waves[:2], 2)
    )
    trainer.train()
    assert trainer.step == 4


def test_denoising_trains_towards_the_clean_target(recordings: Path, tmp_path: Path) -> None:
    clean = [0.1 * torch.randn(1, 3200) for _ in range(6)]
    pairs = [
        {"audio": wave + 0.05 * torch.randn(1, 3200), "target": wave, "lengths": torch.tensor(3200)} for wave in clean
    ]
    trainer = make(recordings, tmp_path / "run", dataset=pairs, valid_frac=0.0, lr=1e-2)
    before = trainer.model.encoder_film.scale.clone()
    trainer.train_step()
    trainer.train_step()
    after = trainer.model.encoder_film.scale
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1])


def test_stereo_in_stereo_out(recordings: Path, tmp_path: Path) -> None:
    trainer = make(recordings, tmp_path / "run", codec(input_channels=2))
    trainer.train_step()
    assert trainer.model(torch.randn(2, 2, 3200), return_recons_only=True).shape == (2, 2, 3200)


def test_a_dying_codebook_raises_an_alarm(recordings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make(recordings, tmp_path / "run", dead_codebook_usage=0.5)
    usage = torch.full((2, 32), 100.0)
    trainer._watch_codebooks(usage)
    assert "is dying" not in capsys.readouterr().err
    usage[1, 4:] = 0.0
    trainer._watch_codebooks(usage)
    trainer._watch_codebooks(usage)
    assert capsys.readouterr().err.count("Codebook 1 is dying: 12.5 %") == 1
    trainer._watch_codebooks(torch.full((2, 32), 100.0))
    trainer._watch_codebooks(usage)
    assert "Codebook 1 is dying" in capsys.readouterr().err


def test_a_trained_codec_keeps_its_codebooks_when_it_is_trained_on(recordings: Path, tmp_path: Path) -> None:
    first = make(recordings, tmp_path / "first", num_train_steps=2)
    first.train()
    trained = SoundStream.from_pretrained(tmp_path / "first")
    before = trained.quantizer.state_dict()
    again = make(recordings, tmp_path / "again", trained)
    again._look_at_first_data()
    for name, tensor in again.model.quantizer.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_X12_two_trainers_in_one_process(recordings: Path, tmp_path: Path) -> None:
    first, second = make(recordings, tmp_path / "a"), make(recordings, tmp_path / "b")
    assert first.train_step() == second.train_step()


def test_X5_an_existing_run_is_neither_cleared_nor_asked_about(recordings: Path, tmp_path: Path) -> None:
    make(recordings, tmp_path / "run", num_train_steps=1).train()
    with pytest.raises(UserError, match="already holds a run"):
        make(recordings, tmp_path / "run")
    assert (tmp_path / "run/checkpoints/step-00000001").exists()
    make(recordings, tmp_path / "run", force_clear_prev_results=True)
    assert not (tmp_path / "run/checkpoints/step-00000001").exists()


@pytest.mark.parametrize("option", ["folder", "discr_max_grad_norm", "data_max_length", "accelerator"])
def test_AT17_none_may_be_said_aloud(recordings: Path, tmp_path: Path, option: str) -> None:
    if option == "folder":
        make(recordings, tmp_path / "run", folder=None, data_max_length_seconds=None, dataset=[torch.randn(3200)] * 4)
    else:
        make(recordings, tmp_path / "run", **{option: None})


def test_AT27_the_package_is_light(tmp_path: Path) -> None:
    heavy = "{'torch', 'wandb', 'transformers', 'sklearn'} & set(sys.modules)"
    check = f"import sys, madrigal; heavy = {heavy}; assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", check], check=True)
    assert set(madrigal.__all__) >= {"SoundStream", "SoundStreamTrainer", "AudioLMSoundStream", "MusicLMSoundStream"}


README_SCRIPT = """
from madrigal import SoundStream, SoundStreamTrainer
import torch

soundstream = SoundStream(
    codebook_size = 4096,
    rq_num_quantizers = 8,
    rq_groups = 2,
    use_lookup_free_quantizer = True,
    use_finite_scalar_quantizer = False,
    attn_window_size = 128,
    attn_depth = 2
)

trainer = SoundStreamTrainer(
    soundstream,
    folder = '/path/to/audio/files',
    batch_size = 4,
    grad_accum_every = 8,
    data_max_length_seconds = 2,
    num_train_steps = 1_000_000
).cuda()

trainer.train()

soundstream.eval()

audio = torch.randn(10080).cuda()
recons = soundstream(audio, return_recons_only = True)
assert recons.shape == (1, 10080)

audio = torch.randn(1, 512 * 320)

codes = soundstream.tokenize(audio)

recon_audio_from_codes = soundstream.decode_from_codebook_indices(codes)

assert torch.allclose(
    recon_audio_from_codes,
    soundstream(audio, return_recons_only = True)
)
"""


@pytest.mark.slow
def test_the_script_of_an_older_readme_runs(recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the path, the million steps and the eightfold accumulation are cut short, for want of a week."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    script = README_SCRIPT.replace("/path/to/audio/files", str(recordings))
    script = script.replace("1_000_000", "1").replace("grad_accum_every = 8", "grad_accum_every = 1")
    exec(compile(script, "readme", "exec"), {})
