"""Byte pairs: the pairs of ids that stand together most often become ids of their own (Sennrich et al., 2016).

The `tokenizers` library learns and applies them. All 256 bytes are ids, so that every text can be said. What was
learned is a list of pairs: pair number n joins two ids to the id 256 + n.
"""

import json
from collections.abc import Iterable
from typing import Any

from madrigal.errors import UserError
from madrigal.tokenizers.text import TextSpec, TextTokenizer

Merges = tuple[tuple[int, int], ...]


class BytePairs(TextTokenizer):
    """256 bytes and the learned pairs. Pairs never cross the border of a word, so that no id is half of two words."""

    def __init__(self, spec: TextSpec) -> None:
        super().__init__(spec)
        if not spec.merges:
            raise UserError("This BPE tokenizer has learned no pairs yet: let it learn from texts (`fit_text`).")
        letters = _byte_letters()
        names = list(letters)
        for number, (left, right) in enumerate(spec.merges):
            if not (0 <= left < 256 + number and 0 <= right < 256 + number):
                raise UserError(f"Pair {number} of this BPE tokenizer joins ids that come after it: {left}, {right}.")
            names.append(names[left] + names[right])
        self.size = len(names)
        values = {letter: value for value, letter in enumerate(letters)}
        self._bytes = [bytes(values[letter] for letter in name) for name in names]
        pairs = [(names[left], names[right]) for left, right in spec.merges]
        self._tokenizer = _pipeline(_library().models.BPE({name: i for i, name in enumerate(names)}, pairs))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def _text(self, ids: list[int]) -> str:
        return b"".join(self._bytes[index] for index in ids).decode(errors="replace")


def learned_merges(texts: Iterable[str], vocabulary: int) -> Merges:
    """The pairs of a vocabulary of this size; fewer where no pair stands there twice."""
    library = _library()
    letters = _byte_letters()
    tokenizer = _pipeline(library.models.BPE())
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=letters, show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = {letter: value for value, letter in enumerate(letters)}
    merges: list[tuple[int, int]] = []
    for left, right in _pairs(tokenizer):
        if left + right not in ids:
            merges.append((ids[left], ids[right]))
            ids[left + right] = len(ids)
    if not merges:
        raise UserError("These texts hold no pair that stands there twice: BPE needs more text, or take kind=bytes.")
    return tuple(merges)


def _pairs(tokenizer: Any) -> list[tuple[str, str]]:
    """The pairs in the order in which they were learned, which the library tells in its file alone."""
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


def _pipeline(model: Any) -> Any:
    library = _library()
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def _byte_letters() -> list[str]:
    """The letter that the library writes for each byte: itself where it is printable, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(value) if value in printable else chr(next(others)) for value in range(256)]


def _library() -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ModuleNotFoundError as error:
        raise UserError('BPE needs the package tokenizers: pip install "madrigal[text]"') from error
    return tokenizers
