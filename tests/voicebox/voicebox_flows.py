"""Small models whose every input matters, features that are their own wave, and trainers of both."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from madrigal.tokenizers.mel_features import Features
from madrigal.voicebox.distill import VoiceBoxDistiller
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.training import VoiceBoxTrainer

DIM, IDS = 6, 9
SIZE: dict[str, Any] = {"dim": 16, "depth": 2, "heads": 2, "dim_head": 8, "num_register_tokens": 2}
SIZE |= {"conv_pos_embed_kernel_size": 5}
TEXT: dict[str, Any] = {"num_cond_tokens": IDS, "dim_cond_emb": 8}


def model(seed: int = 0, *, fresh: bool = False, **options: Any) -> VoiceBox:
    """With weights that are large enough for mistakes to show, unless it is to be `fresh`."""
    torch.manual_seed(seed)
    text = TEXT if options.get("condition_on_text", True) else {}
    made = VoiceBox(**{"dim_in": DIM, **SIZE, **text, **options})
    if not fresh:
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
    return made.eval()


def wrapper(features: Any = None, **options: Any) -> ConditionalFlowMatcherWrapper:
    return ConditionalFlowMatcherWrapper(model(**options), features)


def features(rows: int, frames: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, frames, DIM, generator=torch.Generator().manual_seed(seed))


def ids(rows: int, frames: int, seed: int = 0) -> Tensor:
    return torch.randint(IDS, (rows, frames), generator=torch.Generator().manual_seed(seed))


class Blocks:
    """Features that are the samples themselves, DIM to a frame."""

    dim, hop, sample_rate = DIM, DIM, 600
    frame_rate = 100.0

    def frames(self, samples: Any) -> Any:
        return samples // self.hop

    def encode(self, wave: Tensor, lengths: Tensor | None = None) -> Tensor:
        return wave[:, : wave.shape[1] // DIM * DIM].unflatten(1, (-1, DIM))

    def decode(self, frames: Tensor) -> Tensor:
        return frames.flatten(1)

    def fingerprint(self) -> str:
        return "b" * 16


class Halves(Features):
    """Features that have to be fitted: the samples, DIM to a frame."""

    def __init__(self, name: str = "halves", level: float | None = None) -> None:
        super().__init__(dim=DIM, sample_rate=600, hop=DIM)
        self.name = name
        if level is not None:
            self.take_statistics(torch.full((DIM,), level), torch.ones(DIM))

    def raw(self, wave: Tensor) -> Tensor:
        return wave[:, : wave.shape[1] // DIM * DIM].unflatten(1, (-1, DIM))

    def sound(self, raw: Tensor) -> Tensor:
        return raw.flatten(1)

    def options(self) -> dict[str, Any]:
        return {"kind": self.name}


class Ears:
    """A semantic tokenizer that hears what a sample is rounded to, once for every two frames of `Blocks`."""

    target_sample_hz, frame_rate, codebook_size = Blocks.sample_rate, 50.0, IDS
    size = 2 * DIM

    def tokenize(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        counts = -(-lengths // self.size)
        ids = torch.full((len(audio), int(counts.max())), -1)
        for row, (wave, count) in enumerate(zip(audio, counts.tolist(), strict=True)):
            ids[row, :count] = wave[:: self.size][:count].round().long()
        return ids, counts


class Speaker:
    """A text_to_semantic that has ears alone."""

    wav2vec = Ears()


class Rows(Dataset[Any]):
    """Features of 8 to 13 frames that follow from their ids: what is learned of some rows holds for the others."""

    def __init__(self, count: int = 24, *, kind: str = "dict") -> None:
        self.count, self.kind = count, kind
        self.voices = torch.randn(IDS, DIM, generator=torch.Generator().manual_seed(99))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        frames = 8 + range(self.count)[index] % 6
        said = ids(1, frames, index)[0]
        made = self.voices[said]
        if self.kind == "wave":
            return made.flatten()
        if self.kind == "tuple":
            return made.flatten(), said
        return {"features": made, "ids": said} if self.kind == "dict" else made

    def frames(self, index: int) -> int:
        return 8 + index % 6

    def tokens(self, index: int) -> int:
        return self.frames(index)


PLAN: dict[str, Any] = {
    "num_train_steps": 6,
    "batch_size": 3,
    "lr": 1e-2,
    "warmup_steps": 2,
    "ema_update_after_step": 1,
    "ema_update_every": 1,
    "save_results_every": 3,
    "save_model_every": 2,
    "valid_frac": 0.2,
    "num_samples": 2,
    "sample_steps": 2,
}
HIDING: dict[str, Any] = {"ids_drop_prob": 0.3, "text_drop_prob": 0.3, "cond_drop_prob": 0.3}
HIDING |= {"voice_dim": 4, "ff_dropout": 0.1}


def trainer(place: Path, *, options: dict[str, Any] | None = None, tool: Any = None, **plan: Any) -> VoiceBoxTrainer:
    made = ConditionalFlowMatcherWrapper(model(fresh=True, **(options or {})), tool)
    given = {"dataset": Rows(), **PLAN, **plan}
    return VoiceBoxTrainer(made, results_folder=place, **{n: v for n, v in given.items() if v is not None})


def distiller(folder: Path, *, teacher: VoiceBox | None = None, features: Any = None, **plan: Any) -> VoiceBoxDistiller:
    teacher = teacher or model(cond_drop_prob=0.2)
    plan = {"steps": 2, "teacher_steps": 2, "teacher_cond_scale": 1.5, **plan}
    given = {name: value for name, value in PLAN.items() if name != "sample_steps"}  # a student has steps of its own
    return VoiceBoxDistiller(teacher, features, results_folder=folder, **{"dataset": Rows(), **given, **plan})


TRAINERS: dict[str, Any] = {"voicebox-flow": trainer, "voicebox-distill": distiller}


def whole_state(made: Any) -> dict[str, Tensor]:
    """Weights, their average and the optimizer's moments."""
    state = {f"model.{k}": v.clone() for k, v in made.model.state_dict().items()}
    state |= {f"ema.{k}": v.clone() for k, v in made.ema.state_dict().items()}
    moments = made.turn_states[0].optimizer.state_dict()["state"]
    return state | {f"{i}.{n}": t.clone() for i, s in moments.items() for n, t in s.items() if isinstance(t, Tensor)}
