"""Where MaskGit's pictures and captions come from."""

from pathlib import Path
from typing import Any

from pydantic import Field

from madrigal.data.images import ImageFolderDataset
from madrigal.data.picture_source import pictures_of
from madrigal.data.source import Say, Source
from madrigal.muse.maskgit_config import Size
from madrigal.muse.picture_tokens import tokens_of_pictures
from madrigal.muse.tokenised import Tokenised

TOKENS = "tokens"


class CaptionedSource(Source):
    """Pictures, with captions where the model is conditioned on them."""

    path: Path = Field(description="a folder of pictures with captions, a prepared folder or a manifest")
    cache_tokens: bool = Field(
        True, description="pictures become tokens once, before the training; else at every step, and are augmented"
    )
    tokens: Path | None = Field(
        None, description="where tokens are kept that several runs share; default: the run's own"
    )
    flip: bool = Field(False, description="mirror half of the pictures in training, where tokens are not cached")

    def datasets(
        self, model: Tokenised, *, prepared_in: Path, anew: bool = False, say: Say | None = None
    ) -> tuple[Any, Any]:
        """The training set, and the validation set where one is named."""

        def dataset(path: Path, name: str) -> Any:
            size, folder = model.config.image_size, prepared_in / name
            is_train = name == "train" and not self.cache_tokens
            pictures = self.pictures(path, size, folder, train=is_train, anew=anew, say=say)
            if not self.cache_tokens:
                return pictures
            return tokens_of_pictures(model, pictures, self.tokens or prepared_in / TOKENS, say=say)

        return dataset(self.path, "train"), None if self.valid_path is None else dataset(self.valid_path, "valid")

    def pictures(
        self, path: Path, size: Size, folder: Path, *, train: bool, anew: bool = False, say: Say | None = None
    ) -> ImageFolderDataset:
        """Of one size; prepared in `folder` where they are not prepared yet."""
        listed = pictures_of(path, folder, anew=anew, say=say)
        return ImageFolderDataset(listed, size, train=train, flip=self.flip, rejected_path=folder / "rejected.jsonl")
