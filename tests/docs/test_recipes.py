"""Every shipped recipe builds what it describes, and trains when it is made small."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
import transformers
from blocks import run_command

from madrigal.audiolm.recipe import StageRecipe
from madrigal.audiolm.training import CoarseTransformerTrainer
from madrigal.engine.recipe import recipe_names
from madrigal.muse.vae import VQGanVAE
from madrigal.musiclm.mulan import MuLaN
from madrigal.soundstream.codec import SoundStream
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.recipe import SpearRecipe
from madrigal.tokenizers import load_tokenizer
from madrigal.tokenizers.loading import tokenizer_class
from madrigal.tokenizers.mel_codec import MelCodec
from madrigal.tokenizers.text import TextSpec
from madrigal.verbs.systems import SYSTEMS, load_recipe, model_class
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.recipe import number_of_symbols

PLAN = ["batch_size=2", "grad_accum_every=1", "num_samples=1", "dl_num_workers=0", "warmup_steps=1"]
CODEC = [
    "model.channels=2",
    "model.codebook_dim=16",
    "model.attn_heads=1",
    "model.attn_dim_head=8",
    "model.spectral_dim=16",
    "model.spectral_depth=1",
    "model.complex_stft_discr_kwargs={channels: 2}",
    "model.discr_spectrogram_channels=2",
    "data.max_length_seconds=0.2",
    "plan.num_train_steps=2",
    "plan.discr_start_step=1",
    *(f"plan.{key}" for key in PLAN),
]
STAGE = [
    *(f"model.{key}" for key in ("dim=16", "depth=1", "heads=1", "kv_heads=1", "dim_head=8")),
    "data.max_length_seconds=0.5",
    "plan.num_train_steps=2",
    *(f"plan.{key}" for key in PLAN),
]
TOKENIZER = [
    *(f"model.{key}" for key in ("dim=16", "depth=1", "predictor_depth=1", "heads=1", "dim_head=8", "n_mels=20")),
    "model.codebook_size=12",
    "model.num_targets=12",
    "plan.num_train_steps=2",
    "plan.seconds_per_batch=null",
    *(f"plan.{key}" for key in PLAN),
]
SPEAR = [
    *(f"model.{key}" for key in ("dim=16", "source_depth=1", "target_depth=1", "heads=1", "dim_head=8")),
    "model.target_kv_heads=1",
    "model.target_early_exit_layer=null",
    "model.text={kind: bytes}",
    "plan.num_train_steps=2",
    *(f"plan.{key}" for key in PLAN),
]
MELS = ["model.n_fft=512", "model.n_mels=20"]
VOICE: dict[str, list[str]] = {
    "aligner": [
        *(f"model.{key}" for key in ("dim=16", "depth=1", "n_mels=20")),
        "model.symbols={text: {kind: characters}}",
    ],
    "vocoder": [
        "model.dim=16",
        "model.depth=1",
        "model.discr_spectrogram_channels=2",
        "plan.discr_start_step=1",
        *MELS,
    ],
    "durations": ["model.dim=16", "model.depth=2", "model.heads=1", "model.dim_head=8"],
    "voicebox-flow": ["model.dim=16", "model.depth=2", "model.heads=1", "model.dim_head=8"],
    "voicebox-distill": ["plan.teacher_cond_scale=1", "plan.teacher_steps=1"],
}
"""The parts of a voice."""
ONE_BY_ONE = ["plan.num_train_steps=2", "plan.seconds_per_batch=null", *(f"plan.{key}" for key in PLAN)]
PARTS_OF_A_VOICE = {"aligner": "aligner", "vocoder": "vocoder", "durations": "durations", "flow": "voicebox-flow"}
SPOKEN = ("speech-speech", "semantic-to-text", "text-to-semantic")
CLUSTERS = ["model.codebook_size=12", "plan.iterations=2"]
MELS = [
    *(f"model.{key}" for key in ("dim=16", "encoder_depth=1", "decoder_depth=1", "latent_dim=8", "codebook_size=12")),
    "data.max_length_seconds=0.2",
    "plan.num_train_steps=2",
    *(f"plan.{key}" for key in PLAN),
]
MULAN = [
    *(f"model.{side}.{key}" for side in ("audio", "text") for key in ("dim=16", "depth=1", "heads=1", "dim_head=8")),
    "model.text.tokenizer={kind: bytes}",
    "data.max_length_seconds=0.5",
    "plan.num_train_steps=2",
    "plan.chunk_size=1",
    *(f"plan.{key}" for key in PLAN),
]
QUANTIZER = [
    *(f"model.{key}" for key in ("conditioning_dims=8", "codebook_size=4", "rq_num_quantizers=2")),
    "plan.num_train_steps=2",
    *(f"plan.{key}" for key in PLAN),
]
PICTURES = [
    "model.dim=16",
    "model.resnet_groups=4",
    "model.num_resnet_blocks=1",
    "data.image_size=32",
    "plan.num_train_steps=2",
    "plan.discr_start_step=1",
    *(f"plan.{key}" for key in PLAN),
]
SMALL: dict[str, list[str]] = {
    "vqgan": PICTURES,
    "soundstream": CODEC,
    "mel-codec": MELS,
    "kmeans": CLUSTERS,
    "masked-prediction": TOKENIZER,
    "mulan": MULAN,
    "mulan-quantizer": QUANTIZER,
    "musiclm": [
        "workers=1",
        *(f"mulan.{change}" for change in MULAN if "tokenizer" not in change),
        "mulan.model.text.tokenizer.vocabulary=262",
        *(f"quantizer.{change}" for change in QUANTIZER),
        *(f"{stage}.{change}" for stage in ("semantic", "coarse", "fine") for change in STAGE),
    ],
    "semantic": STAGE,
    "coarse": STAGE,
    "fine": STAGE,
    "audiolm": [
        "codec=speech-16k",
        "workers=1",
        *(f"tokenizer.{change}" for change in TOKENIZER),
        *(f"{stage}.{change}" for stage in ("semantic", "coarse", "fine") for change in STAGE),
    ],
    **dict.fromkeys(SPOKEN, SPEAR),
    **{system: [*changes, *ONE_BY_ONE] for system, changes in VOICE.items()},
    "voicebox": [
        f"{part}.{change}" for part, name in PARTS_OF_A_VOICE.items() for change in [*VOICE[name], *ONE_BY_ONE]
    ],
    "speartts": [
        "codec=speech-16k",
        "speech=untranscribed",
        "workers=1",
        "labels={threshold: 0.0, beam_size: 2}",
        *(f"tokenizer.{change}" for change in TOKENIZER),
        *(f"{part}.{change}" for part in ("pretrain", "read", "speak") for change in SPEAR),
        *(f"{stage}.{change}" for stage in ("coarse", "fine") for change in STAGE),
    ],
}
"""What makes the recipes of a system so small that two steps take no time."""


def recipe(name: str, *overrides: str) -> Any:
    return load_recipe(name, list(overrides))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory, recordings: Path) -> Path:
    """A tokenizer for the recipes of the stages."""
    run = tmp_path_factory.mktemp("tokenizer")
    recipe("kmeans/tiny", f"data={recordings}", *CLUSTERS).trainer(run / "run").train()
    return run / "run"


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of Whisper's kind, as small as can be."""
    folder = tmp_path_factory.mktemp("whisper")
    sizes = {"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
    config = transformers.WhisperConfig(
        d_model=16, encoder_ffn_dim=64, decoder_ffn_dim=32, vocab_size=50, **sizes, **ids
    )
    transformers.WhisperModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory, recordings: Path) -> Path:
    """A vocoder, alignments and a flow, for the recipes of the parts that need them."""
    run = tmp_path_factory.mktemp("voice") / "run"
    recipe("voicebox/tiny", f"data={recordings}", "voices=0").trainer(run).train()
    return run


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MuLaN that nobody has trained."""
    folder = tmp_path_factory.mktemp("mulan")
    MuLaN.of(recipe("mulan/tiny").model).save_pretrained(folder)
    return folder


def needs(system: str, voice: Path, recordings: Path) -> list[str]:
    """What a part of a voice is given by the others, who know these recordings."""
    aligned = [f"data={recordings}", f"data.alignments={voice / 'alignments'}"]
    sounding = [*aligned, f"features={voice / 'vocoder'}"]
    taught = [*sounding, f"teacher={voice / 'flow'}"]
    return {"durations": aligned, "voicebox-flow": sounding, "voicebox-distill": taught}.get(system, [])


PAINTED = ("maskgit", "token-critic", "muse")
"""What makes pictures: tests/muse/test_muse_recipes.py has their recipes."""


@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.startswith(PAINTED)])
def test_builds_as_it_stands(name: str, clusters: Path, whisper: Path, voice: Path, recordings: Path) -> None:
    system = name.partition("/")[0]
    given = [f"tokenizer={clusters}"] if system in ("semantic", "coarse", *SPOKEN) else needs(system, voice, recordings)
    given += ["start=null"] if system in SPOKEN else []
    given += [f"model.checkpoint={whisper}"] if name == "kmeans/whisper" else []
    found = recipe(name, *given)
    if found.system == "soundstream":
        assert 1_000 <= SoundStream(found.model).bitrate() <= 24_000
    elif found.system == "mel-codec":
        assert MelCodec(found.model).frame_rate == 50
    elif isinstance(found, StageRecipe):
        config = found.config(**found.tools())
        with torch.device("meta"):  # at full size, but for the memory
            stage = found.transformer(config)
        assert stage.layout.sections[-1].codebook_size == (12 if found.system == "semantic" else 1024)
    elif isinstance(found, SpearRecipe):
        config = found.config(load_tokenizer(found.tokenizer))
        with torch.device("meta"):
            assert TextToSemantic(config).end("speech") == 12
    elif found.system == "audiolm":
        assert found.parts == ["tokenizer", "semantic", "coarse", "fine"]
    elif found.system == "speartts":
        assert found.parts == ["tokenizer", "pretrain", "read", "speak", "coarse", "fine"]
    elif found.system == "voicebox":
        assert found.parts == list(PARTS_OF_A_VOICE)
    elif found.system == "voicebox-flow":
        with torch.device("meta"):
            assert VoiceBox(found.config(80)).null == number_of_symbols(found.data.alignments)
    elif found.system == "mulan":
        # One layer of each, for the filters of the mels cannot be made without memory.
        text = found.model.text.model_copy(update={"tokenizer": TextSpec(), "depth": 1})
        sides = {"text": text, "audio": found.model.audio.model_copy(update={"depth": 1})}
        assert MuLaN.of(found.model.model_copy(update=sides)).dim_latent == found.model.dim_latent
        assert found.plan.batch_size > 2
    elif found.system == "musiclm":
        assert found.parts == ["mulan", "quantizer", "tokenizer", "codec", "semantic", "coarse", "fine"]
    elif found.system == "vqgan":
        with torch.device("meta"):
            assert VQGanVAE(found.model).get_encoded_fmap_size(found.data.size) in ((4, 4), (16, 16))
    elif found.system in (*VOICE, "mulan-quantizer"):
        assert found.plan.num_train_steps > 0
    else:
        assert tokenizer_class(found.model.kind)(found.model).codebook_size >= 2


def test_parts_of_a_whole_fit_each_other() -> None:
    """What a stage of `audiolm/…` gives is what the next one takes."""
    for name in (name for name in recipe_names() if name.startswith(("audiolm/", "musiclm/"))):
        whole = recipe(name)
        semantic, coarse, fine = (whole.part(part, Path("RUN")) for part in ("semantic", "coarse", "fine"))
        assert semantic.model["unique_consecutive"] == coarse.model["unique_consecutive"], name
        assert coarse.model["num_coarse_quantizers"] == fine.model["num_coarse_quantizers"], name
    for name in (name for name in recipe_names() if name.startswith("speartts/")):
        whole = recipe(name)
        *spoken, coarse, fine = (
            whole.part(part, Path("RUN")).model for part in ("pretrain", "read", "speak", "coarse", "fine")
        )
        assert {part.get("unique_consecutive", True) for part in spoken} == {coarse["unique_consecutive"]}, name
        assert coarse["num_coarse_quantizers"] == fine["num_coarse_quantizers"], name


WHOLES = ("audiolm/", "speartts/", "voicebox/", "musiclm/")


@pytest.mark.parametrize("name", [name for name in recipe_names() if not name.startswith((*WHOLES, *PAINTED))])
def test_trains_when_it_is_small(
    name: str, workplace: Path, clusters: Path, whisper: Path, voice: Path, recordings: Path, joint: Path
) -> None:
    system = name.partition("/")[0]
    given = [f"tokenizer={clusters}"] if system in ("semantic", "coarse", *SPOKEN) else needs(system, voice, recordings)
    given += ["start=null"] if system in SPOKEN else []
    given += [f"model.checkpoint={whisper}"] if name == "kmeans/whisper" else []
    given += ["codec=speech-16k"] if system in ("coarse", "fine") else []
    given += [f"mulan={joint}"] if system == "mulan-quantizer" else []
    data = "pictures" if system == "vqgan" else "recordings"
    trainer = recipe(name, f"data={data}", *given, *SMALL[system]).trainer(workplace / "run").train()
    lines = [json.loads(line) for line in (workplace / "run" / "metrics.jsonl").read_text().splitlines()]
    figures = {key for line in lines for key in line}
    if system in ("kmeans", "masked-prediction"):
        assert load_tokenizer(workplace / "run").codebook_size == 12
    if system == "kmeans":
        return
    assert trainer.step == 2
    assert trainer.plan.best_metric in {None, *figures}
    if system == "soundstream":
        for critic in trainer.model.discriminators:
            assert f"discriminator/{critic}/hinge" in figures
    again = model_class(str(workplace / "run")).from_pretrained(workplace / "run")
    assert again.config == trainer.model.config


@pytest.mark.parametrize("name", [whole + size for whole in WHOLES for size in ("cpu", "paper")])
def test_a_whole_trains_when_it_is_small(name: str, workplace: Path) -> None:
    other = {"musiclm/cpu": (CLUSTERS, MELS), "musiclm/paper": (TOKENIZER, CODEC)}.get(name, ([], []))
    made = [f"{part}.{change}" for part, changes in zip(("tokenizer", "codec"), other) for change in changes]
    whole = recipe(name, "data=recordings", *SMALL[name.partition("/")[0]], *made)
    whole.trainer(workplace / "run").train()
    for part in whole.parts:
        last = "model.safetensors" if (name, part) == ("musiclm/cpu", "tokenizer") else "checkpoints/step-00000002"
        assert (workplace / "run" / part / last).exists()


def test_the_tiny_whole_trains_resumes_and_generates(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in its third part, it goes on there, and leaves alone what was done."""
    loss = CoarseTransformerTrainer.loss

    def interrupted(self: CoarseTransformerTrainer, turn: str, batch: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, turn, batch)

    with monkeypatch.context() as patch:
        patch.setattr(CoarseTransformerTrainer, "loss", interrupted)
        run_command(["madrigal", "train", "audiolm/tiny", "data=recordings", "--run", "runs/tiny"])
    assert [path.name for path in Path("runs/tiny/coarse/checkpoints").iterdir()] == ["step-00000001"]
    assert not Path("runs/tiny/fine").exists()
    before = times("tokenizer", "tokens", "semantic")

    run_command(["madrigal", "train", "--resume", "--run", "runs/tiny"])
    assert times("tokenizer", "tokens", "semantic") == before
    for stage in ("coarse", "fine"):
        assert Path("runs/tiny", stage, "checkpoints", "step-00000004").is_dir()
    run_command(["madrigal", "generate", "runs/tiny", "--prompt", "speech.wav", "--seconds", "0.3"])
    assert soundfile.info("generated/000.wav").frames == 32000 + 4800


def times(*parts: str) -> dict[Path, int]:
    """When the weights and tokens of these parts of the run were written."""
    files = [
        file for part in parts for file in Path("runs/tiny", part).rglob("*") if file.suffix in (".safetensors", ".npy")
    ]
    assert files
    return {file: file.stat().st_mtime_ns for file in files}


def test_a_finished_tokenizer_takes_the_place_of_its_recipe() -> None:
    whole = recipe("audiolm/cpu", "tokenizer=runs/tokenizer", "fine=null")
    assert whole.tokenizer == "runs/tokenizer"
    assert whole.parts == ["semantic", "coarse"]
    assert whole.part("coarse", Path("RUN")).tokenizer == "runs/tokenizer"


def test_every_system_has_a_recipe_of_every_size() -> None:
    for system in SYSTEMS:
        small = system in (
            "kmeans",
            "aligner",
            "durations",
            "voicebox-distill",
            "token-critic",
        )  # these serve every size
        sizes = {"tiny", "cpu"} if small else {"tiny", "cpu", "paper"}
        assert sizes <= {name.partition("/")[2] for name in recipe_names() if name.startswith(f"{system}/")}
