"""Scripts that were written for audiolm-pytorch: the blocks of its README, with their import lines changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_codecs import small_codec

import madrigal
from madrigal import load_audiolm
from madrigal.audiolm import pipeline
from madrigal.verbs.systems import load_recipe

transformers = pytest.importorskip("transformers")

SEMANTIC = """
import torch
from audiolm_pytorch import HubertWithKmeans, SemanticTransformer, SemanticTransformerTrainer

# hubert checkpoints can be downloaded at
# https://github.com/facebookresearch/fairseq/tree/main/examples/hubert

wav2vec = HubertWithKmeans(
    checkpoint_path = './hubert/hubert_base_ls960.pt',
    kmeans_path = './hubert/hubert_base_ls960_L9_km500.bin'
)

semantic_transformer = SemanticTransformer(
    num_semantic_tokens = wav2vec.codebook_size,
    dim = 1024,
    depth = 6,
    flash_attn = True
).cuda()


trainer = SemanticTransformerTrainer(
    transformer = semantic_transformer,
    wav2vec = wav2vec,
    folder ='/path/to/audio/files',
    batch_size = 1,
    data_max_length = 320 * 32,
    num_train_steps = 1
)

trainer.train()
"""

COARSE = """
import torch
from audiolm_pytorch import HubertWithKmeans, SoundStream, CoarseTransformer, CoarseTransformerTrainer

wav2vec = HubertWithKmeans(
    checkpoint_path = './hubert/hubert_base_ls960.pt',
    kmeans_path = './hubert/hubert_base_ls960_L9_km500.bin'
)

soundstream = SoundStream.init_and_load_from('/path/to/trained/soundstream.pt')

coarse_transformer = CoarseTransformer(
    num_semantic_tokens = wav2vec.codebook_size,
    codebook_size = 1024,
    num_coarse_quantizers = 3,
    dim = 512,
    depth = 6,
    flash_attn = True
)

trainer = CoarseTransformerTrainer(
    transformer = coarse_transformer,
    codec = soundstream,
    wav2vec = wav2vec,
    folder = '/path/to/audio/files',
    batch_size = 1,
    data_max_length = 320 * 32,
    num_train_steps = 1_000_000
)

trainer.train()
"""

FINE = """
import torch
from audiolm_pytorch import SoundStream, FineTransformer, FineTransformerTrainer

soundstream = SoundStream.init_and_load_from('/path/to/trained/soundstream.pt')

fine_transformer = FineTransformer(
    num_coarse_quantizers = 3,
    num_fine_quantizers = 5,
    codebook_size = 1024,
    dim = 512,
    depth = 6,
    flash_attn = True
)

trainer = FineTransformerTrainer(
    transformer = fine_transformer,
    codec = soundstream,
    folder = '/path/to/audio/files',
    batch_size = 1,
    data_max_length = 320 * 32,
    num_train_steps = 1_000_000
)

trainer.train()
"""

TOGETHER = """
from audiolm_pytorch import AudioLM

audiolm = AudioLM(
    wav2vec = wav2vec,
    codec = soundstream,
    semantic_transformer = semantic_transformer,
    coarse_transformer = coarse_transformer,
    fine_transformer = fine_transformer
)

generated_wav = audiolm(batch_size = 1)

# or with priming

generated_wav_with_prime = audiolm(prime_wave = torch.randn(1, 320 * 8))

# or with text condition, if given

generated_wav_with_text_condition = audiolm(text = ['chirping of birds and the distant echos of bells'])
"""

WITH_TEXT = """
import torch
from audiolm_pytorch import HubertWithKmeans, SemanticTransformer, SemanticTransformerTrainer

wav2vec = HubertWithKmeans(
    checkpoint_path = './hubert/hubert_base_ls960.pt',
    kmeans_path = './hubert/hubert_base_ls960_L9_km500.bin'
)

semantic_transformer = SemanticTransformer(
    num_semantic_tokens = 500,
    dim = 1024,
    depth = 6,
    has_condition = True,               # this will have to be set to True
    cond_as_self_attn_prefix = True     # whether to condition as prefix to self attention, instead of cross attention
).cuda()

# mock text audio dataset (as an example)

from torch.utils.data import Dataset

class MockTextAudioDataset(Dataset):
    def __init__(self, length = 100, audio_length = 320 * 32):
        super().__init__()
        self.audio_length = audio_length
        self.len = length

    def __len__(self):
        return self.len

    def __getitem__(self, idx):
        mock_audio = torch.randn(self.audio_length)
        mock_caption = 'audio caption'
        return mock_caption, mock_audio

dataset = MockTextAudioDataset()

# instantiate semantic transformer trainer and train

trainer = SemanticTransformerTrainer(
    transformer = semantic_transformer,
    wav2vec = wav2vec,
    dataset = dataset,
    batch_size = 4,
    grad_accum_every = 8,
    data_max_length = 320 * 32,
    num_train_steps = 1_000_000
)

trainer.train()

# after much training above

sample = trainer.generate(text = ['sound of rain drops on the rooftops'], batch_size = 1, max_length = 2)
"""

SHORTER = {
    "from audiolm_pytorch import": "from madrigal import",
    "dim = 1024": "dim = 32",
    "dim = 512": "dim = 32",
    "depth = 6": "depth = 1, heads = 2, dim_head = 16",
    "1_000_000": "2",
    "grad_accum_every = 8": "grad_accum_every = 1",
    "length = 100": "length = 10",
    # A model that has learned nothing does not know where to end.
    "audiolm(": "audiolm(max_length = 12, ",
}
"""Only the first line is what a user has to change; the rest is for want of a week."""


def execute(script: str, names: dict[str, Any], **paths: Path) -> dict[str, Any]:
    for long, short in SHORTER.items():
        script = script.replace(long, short)
    for path, place in (("audio/files", "recordings"), ("trained/soundstream.pt", "codec")):
        script = script.replace(f"/path/to/{path}", str(paths.get(place, place)))
    exec(compile(script, "readme", "exec"), names)
    return names


@pytest.fixture(scope="module")
def hubert(tmp_path_factory: pytest.TempPathFactory, sounds: Path) -> Path:
    """A checkpoint that transformers wrote, and centroids that `madrigal train kmeans` fitted, by the older names."""
    folder = tmp_path_factory.mktemp("hubert")
    torch.manual_seed(0)
    config = transformers.HubertConfig(
        hidden_size=8,
        num_hidden_layers=9,
        num_attention_heads=2,
        intermediate_size=8,
        conv_dim=[8] * 7,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
    )
    checkpoint = folder / "hubert_base_ls960.pt"
    transformers.HubertModel(config).save_pretrained(checkpoint)
    model = f"model={{kind: huggingface, checkpoint: {checkpoint}, codebook_size: 500}}"
    recipe = load_recipe("kmeans/tiny", [model, f"data={sounds}", "plan.iterations=1"])
    recipe.trainer(folder / "hubert_base_ls960_L9_km500.bin").train()
    return folder


@pytest.fixture
def desk(tmp_path: Path, hubert: Path, sounds: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The folder that a script is run in: hubert/ is there, and no GPU, which nothing minds."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(hubert, tmp_path / "hubert")
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)
    torch.manual_seed(0)
    codec = small_codec(1024, 8, discr_multi_scales=(), use_complex_stft_discr=False)
    codec.save_pretrained(tmp_path / "codec")
    return {"recordings": sounds, "codec": tmp_path / "codec"}


def test_three_trainings_and_audiolm(desk: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In one folder and one process, as one would paste them."""
    names: dict[str, Any] = {}
    for script in (SEMANTIC, COARSE, FINE):
        execute(script, names, **desk)
    monkeypatch.setattr(pipeline, "MAX_TIME_STEPS", 8)
    with pytest.warns(UserWarning, match="None of the stages was trained with a condition"):
        execute(TOGETHER, names)
    for made in ("", "_with_prime", "_with_text_condition"):
        wave = names[f"generated_wav{made}"]
        assert wave.shape[0] == 1
        assert wave.shape[1] % 320 == 0
        assert wave.isfinite().all()
    assert names["generated_wav_with_prime"].shape[1] > 8 * 320
    # What the three trainers left in their usual folder is a run of AudioLM.
    model = load_audiolm(["results"], tokenizer="hubert/hubert_base_ls960_L9_km500.bin", codec=str(desk["codec"]))
    assert model(seconds=0.1, max_length=6).shape == (1, 1600)


def test_a_semantic_stage_with_text(desk: dict[str, Path]) -> None:
    """The default T5 is a folder of this name instead of on the hub, and as tiny as the rest."""
    write_t5(Path("google/t5-v1_1-base"))
    names = execute(WITH_TEXT, {}, **desk)
    assert names["sample"].shape[0] == 1
    assert names["sample"].shape[1] <= 2


def write_t5(folder: Path) -> None:
    """A random T5 and a tokenizer that knows letters."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz "])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    config = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=len(words))
    transformers.T5EncoderModel(config).save_pretrained(folder)


OLDER_NAMES = [
    "AudioLM",
    "SoundStream",
    "AudioLMSoundStream",
    "MusicLMSoundStream",
    "EncodecWrapper",
    "SemanticTransformer",
    "CoarseTransformer",
    "FineTransformer",
    "FineTransformerWrapper",
    "CoarseTransformerWrapper",
    "SemanticTransformerWrapper",
    "FairseqVQWav2Vec",
    "HubertWithKmeans",
    "SoundStreamTrainer",
    "SemanticTransformerTrainer",
    "FineTransformerTrainer",
    "CoarseTransformerTrainer",
    "get_embeds",
    "AudioConditionerBase",
]


@pytest.mark.parametrize("name", sorted({*OLDER_NAMES, *madrigal.__all__}))
def test_every_name_imports_from_the_top(name: str) -> None:
    assert name in dir(madrigal)
    thing = getattr(madrigal, name)
    assert name == "__version__" or (callable(thing) and re.match(name, thing.__name__))


def test_embeddings_of_padded_ids_are_zero() -> None:
    table = torch.nn.Embedding(4, 3)
    ids = torch.tensor([[1, 0, -1], [3, -1, -1]])
    embeds, mask = madrigal.get_embeds(table, ids, return_mask=True)
    assert mask.tolist() == [[True, True, False], [True, False, False]]
    assert not embeds[~mask].any()
    assert torch.equal(embeds[mask], table(ids[mask]))
