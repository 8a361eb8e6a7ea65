"""A sentence encoder that others have trained (MiniLM, T5, …), as the text side of MuLaN, frozen or tuned."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.musiclm.encoder import Encoded, mean_over
from madrigal.musiclm.text_transformer import Texts
from madrigal.tokenizers.foreign import foreign_config, foreign_folder, foreign_model, transformers_library

WANTED = "A pretrained sentence encoder"
WIDTHS, DEPTHS = ("hidden_size", "d_model", "dim"), ("num_hidden_layers", "num_layers", "n_layers")
"""What configs of transformers call them."""


class SentenceConfig(BaseModel):
    """Options of `SentenceEncoder`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["pretrained"] = "pretrained"
    name: str = Field(description="a folder of transformers, or a hub name that was fetched before")
    tuned: bool = Field(False, description="it learns with the rest, and is saved with it; else it stays as it is")
    max_seq_len: int = Field(128, ge=1, description="what of a caption is longer is not read")


class SentenceEncoder(nn.Module):
    """Captions -> vectors [batch, dim]: the mean of the encoder's last states.

    One that is not tuned is no part of the model: it is in no optimizer and no checkpoint, and read when it is needed.
    All is read from this machine: the width decides what MuLaN is built of, and building asks no network.
    """

    def __init__(self, config: SentenceConfig) -> None:
        super().__init__()
        if Path(config.name).is_dir():
            # A model that is saved is loaded from other working directories, too.
            config = config.model_copy(update={"name": str(Path(config.name).absolute())})
        self.config = config
        self._folder = foreign_folder(config.name, WANTED)
        said = foreign_config(self._folder) or {}
        self.dim, self.depth = _size(said, WIDTHS, config.name), _size(said, DEPTHS, config.name)
        self._class = "T5EncoderModel" if said.get("model_type") == "t5" else "AutoModel"
        self._tokenizer: Any = None
        self.register_buffer("_here", torch.zeros(0), persistent=False)
        self._here: Tensor
        if config.tuned:
            self.model = foreign_model(self._class, self._folder, WANTED).requires_grad_(True)

    def forward(self, texts: Texts) -> Tensor:
        """[batch, dim]."""
        return self.encode(texts).pooled

    def encode(self, texts: Texts) -> Encoded:
        """As `forward`, with the pooled layers beside."""
        model = self._model()
        tokens = self._tokens(texts, return_tensors="pt", padding="longest").to(self._here.device)
        with torch.set_grad_enabled(self.config.tuned and torch.is_grad_enabled()):
            found = model(**tokens, output_hidden_states=True)
        real = tokens["attention_mask"].bool()
        layers = [mean_over(state, real) for state in found.hidden_states[1:]]
        return Encoded(mean_over(found.last_hidden_state, real), torch.stack(layers))

    def rows(self, texts: Texts) -> list[list[int]]:
        """The ids that are read of each text, without padding."""
        found: list[list[int]] = self._tokens(texts)["input_ids"]
        return found

    def _tokens(self, texts: Texts, **how: Any) -> Any:
        if isinstance(texts, Tensor):
            raise UserError("A pretrained sentence encoder reads captions, not ids: give it texts.")
        return self._tokenizer_()(texts, truncation=True, max_length=self.config.max_seq_len, **how)

    def weights(self) -> dict[str, Tensor]:
        """Its weights by their names, frozen or not."""
        return dict(self._model().state_dict())

    def _model(self) -> Any:
        if self.config.tuned:
            return self.model
        if "_kept" not in self.__dict__:
            self.__dict__["_kept"] = foreign_model(self._class, self._folder, WANTED)
        return self.__dict__["_kept"].to(self._here.device)

    def _tokenizer_(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = transformers_library(WANTED).AutoTokenizer.from_pretrained(self._folder)
        return self._tokenizer


def _size(said: dict[str, Any], names: tuple[str, ...], where: str) -> int:
    for name in names:
        if isinstance(said.get(name), int):
            return int(said[name])
    raise UserError(f"{where} is no text encoder: its config names none of {', '.join(names)}.")
