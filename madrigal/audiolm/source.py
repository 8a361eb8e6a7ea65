"""Where a stage's tokens come from: shards on disk, or recordings that are tokenized batch by batch."""

from pathlib import Path
from typing import Any

from pydantic import Field

from madrigal.data.manifest import Manifest
from madrigal.data.source import AudioSource, Say, Source, manifest_of
from madrigal.data.token_dataset import TokenDataset
from madrigal.data.tokens import TokenShards
from madrigal.errors import UserError


class TokenSource(Source):
    """Recordings, and their tokens where they lie on disk."""

    tokens: Path | None = Field(
        None,
        description="what `madrigal tokenize` wrote for it (a folder, or one that holds train and valid); else audio",
    )
    max_length_seconds: float | None = Field(None, gt=0, description="length of a crop; none takes whole recordings")
    fields: tuple[str, ...] = Field((), description="what else a batch gets of the manifest, such as text")

    def datasets(
        self,
        *,
        tokenizer: Any,
        codec: Any,
        conditioner: Any = None,
        prepared_in: Path,
        anew: bool = False,
        say: Say | None = None,
    ) -> tuple[Any, Any]:
        """The training set, and the validation set where one is named, for a stage that has these tokenizers."""
        if self.tokens is None:
            train, valid = self._audio(tokenizer, codec, prepared_in, anew, say)
        else:
            train, valid = self._tokens(self.tokens, (tokenizer, codec, conditioner), prepared_in, anew, say)
        if "text" in self.fields and not any(entry.text for entry in train.entries):
            raise UserError(
                f"None of the recordings of {self.path} has a text; put a .txt file beside each, or train without text."
            )
        return train, valid

    def _tokens(
        self, tokens: Path, makers: tuple[Any, ...], prepared_in: Path, anew: bool, say: Say | None
    ) -> tuple[Any, Any]:
        def dataset(path: Path, name: str) -> TokenDataset:
            manifest = manifest_of(path, prepared_in / name, anew=anew, say=say)
            apart = tokens / name
            made = self._dataset(manifest, apart if apart.is_dir() else tokens, makers)
            if made.left_out and say is not None:
                first, reason = next(iter(made.left_out.items()))
                count = f"{len(made.left_out)} of {len(manifest)}"
                say(f"{count} recordings have no tokens and are left out; the first is {first} ({reason})")
            return made

        return dataset(self.path, "train"), dataset(self.valid_path, "valid") if self.valid_path else None

    def _dataset(self, manifest: Manifest, tokens: Path, makers: tuple[Any, ...]) -> TokenDataset:
        semantic, acoustic, condition = (
            None if made_by is None else TokenShards.find(tokens, made_by.fingerprint(), manifest) for made_by in makers
        )
        return TokenDataset(
            manifest,
            semantic,
            acoustic,
            condition=condition,
            max_seconds=self.max_length_seconds,
            fields=self.fields,
        )

    def _audio(self, tokenizer: Any, codec: Any, prepared_in: Path, anew: bool, say: Say | None) -> tuple[Any, Any]:
        makers = [made_by for made_by in (tokenizer, codec) if made_by is not None]
        if not makers:
            raise UserError("Recordings need a tokenizer or a codec to become tokens: give the trainer one.")
        rates = tuple(dict.fromkeys(made_by.target_sample_hz for made_by in makers))
        source = AudioSource(path=self.path, valid_path=self.valid_path, max_length_seconds=self.max_length_seconds)
        return source.datasets(
            rates,
            multiple_of=tuple(_multiple(makers, rate) for rate in rates),
            channels=1,
            fields=("reaches_end", *self.fields),
            prepared_in=prepared_in,
            anew=anew,
            say=say,
        )


def _multiple(makers: list[Any], rate: int) -> int:
    """What a crop at `rate` is cut to: whole tokens of the coarsest that hears this rate."""
    return max(int(m.downsample_factor) for m in makers if m.target_sample_hz == rate)
