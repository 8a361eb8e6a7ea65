"""The text side of MuLaN: captions through the shared transformer, or through somebody else's sentence encoder."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.musiclm.encoder import Count, Encoded, Encoder, EncoderConfig
from madrigal.tokenizers.text import TextSpec, TextTokenizer, has_to_learn, make_text_tokenizer

Texts = list[str] | Tensor
OLDER_VOCABULARY = 49408
"""Ids that older scripts may give where they name neither a tokenizer nor a number."""


class TextConfig(EncoderConfig):
    """Options of `TextTransformer`."""

    kind: Literal["transformer"] = "transformer"
    tokenizer: TextSpec = Field(default_factory=TextSpec, description="how captions become ids")
    num_tokens: Count | None = Field(None, description="ids that there are; none: those of the tokenizer")
    max_seq_len: Count = Field(256, description="what of a caption is longer is not read")
    pad_id: int | None = Field(
        None,
        description="in rows of ids that are given in place of captions; -1 is padding too; none: 0 with bytes and "
        "bpe, where no text has it, and -1 alone with other tokenizers",
    )
    pool: Literal["cls", "mean"] = Field(
        "cls", description="a token of its own stands for the caption, or the mean does"
    )


class TextTransformer(Encoder):
    """Captions, or ids [batch, time] -> vectors [batch, dim]."""

    def __init__(self, config: TextConfig | None = None, **options: Any) -> None:
        if config is None or options:
            if not {"num_tokens", "tokenizer"} & options.keys() and config is None:
                options["num_tokens"] = OLDER_VOCABULARY
            given = {} if config is None else config.model_dump()
            config = build_config(TextConfig, {**given, **options}, "TextTransformer")
        super().__init__(config)
        if has_to_learn(config.tokenizer):
            raise UserError(
                "The text transformer's tokenizer has learned nothing yet: let it learn first (`fit_text`)."
            )
        self.tokenizer: TextTokenizer = make_text_tokenizer(config.tokenizer)
        if config.num_tokens is None:
            config = config.model_copy(update={"num_tokens": self.tokenizer.size})
        if config.pad_id is None:
            # Of bytes and their pairs it is NUL; others have a use for 0: of the characters it is the space.
            config = config.model_copy(update={"pad_id": 0 if config.tokenizer.kind in ("bytes", "bpe") else PAD})
        self.config, self.num_tokens = config, int(config.num_tokens or 0)
        if self.num_tokens < self.tokenizer.size:
            raise UserError(f"num_tokens={self.num_tokens} is less than the tokenizer's {self.tokenizer.size} ids.")
        self.embedding = nn.Embedding(self.num_tokens, config.dim)
        self.cls = nn.Parameter(torch.randn(config.dim) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, texts: Texts, *, return_all_layers: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Captions, or int64 [batch, time] -> [batch, dim]; with all layers [depth, batch, dim] too."""
        found = self.encode(texts)
        return (found.pooled, found.layers) if return_all_layers else found.pooled

    def encode(self, texts: Texts) -> Encoded:
        """As `forward`, with the pooled layers beside."""
        ids, real = self.ids(texts)
        x = self.embedding(ids)
        # A text of no tokens still has the first one.
        x = torch.cat((self.cls.expand(len(x), 1, -1), x), dim=1)
        real = nn.functional.pad(real, (1, 0), value=True)
        return self.run(x, real, first_alone=self.config.pool == "cls")

    def ids(self, texts: Texts) -> tuple[Tensor, Tensor]:
        """Int64 [batch, time], and which are real, bool [batch, time]; padding is any id, and seen by nobody."""
        device, most = self.cls.device, self.config.max_seq_len
        if isinstance(texts, Tensor):
            given = texts[:, :most].long()
            real = (given != self.config.pad_id) & (given != PAD)
            wrong = given[real & ((given < 0) | (given >= self.num_tokens))]
            if wrong.numel():
                raise UserError(f"{int(wrong[0])} is no id of this text transformer, which has {self.num_tokens}.")
            return given.masked_fill(~real, 0).to(device), real.to(device)
        rows = [torch.tensor(row, dtype=torch.long) for row in self.rows(texts)]
        padded = pad_sequence(rows, batch_first=True).to(device)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return padded, mask_from_lengths(lengths, padded.shape[1])

    def rows(self, texts: Texts) -> list[list[int]]:
        """The ids that are read of each text, without padding."""
        most = self.config.max_seq_len
        if isinstance(texts, Tensor):
            padding = (PAD, self.config.pad_id)
            return [[number for number in row if number not in padding] for row in texts[:, :most].tolist()]
        return [self.tokenizer.encode(text)[:most] for text in texts]
