"""Where MaskGit's pictures and captions come from."""

from pathlib import Path
from typing import Any

from pydantic import Field

from madrigal.data.images import ImageFolderDataset
from madrigal.data.source import Source
from madrigal.engine.progress import tell
from madrigal.muse.picture_tokens import tokens_of_pictures
from madrigal.muse.tokenised import Tokenised

TOKENS = "tokens"


class CaptionedSource(Source):
    """Pictures, with captions where the model is conditioned on them."""

    path: Path = Field(description="a folder of pictures, with captions in .txt beside them or in metadata.jsonl")
    cache_tokens: bool = Field(
        True, description="pictures become tokens once, before the training; else at every step, and may be augmented"
    )
    tokens: Path | None = Field(
        None, description="where tokens are kept that several runs share; default: the run's own"
    )
    flip: bool = Field(False, description="mirror half of the pictures; only where tokens are not cached")

    def datasets(self, model: Tokenised, *, prepared_in: Path) -> tuple[Any, Any]:
        """The training set, and the validation set where one is named."""
        train = self._dataset(self.path, model, prepared_in, train=True)
        return train, None if self.valid_path is None else self._dataset(
            self.valid_path, model, prepared_in, train=False
        )

    def _dataset(self, path: Path, model: Tokenised, prepared_in: Path, *, train: bool) -> Any:
        pictures = self.pictures(path, model, train=train, rejected=prepared_in / "rejected.jsonl")
        if not self.cache_tokens:
            return pictures
        return tokens_of_pictures(model, pictures, self.tokens or prepared_in / TOKENS, say=tell)

    def pictures(
        self, path: Path, model: Tokenised, *, train: bool, rejected: Path | None = None
    ) -> ImageFolderDataset:
        """As they are, or augmented for training."""
        augmented = train and not self.cache_tokens
        height, width = model.config.image_size
        return ImageFolderDataset(
            path,
            height if height == width else (height, width),
            train=augmented,
            flip=self.flip,
            rejected_path=rejected,
        )
