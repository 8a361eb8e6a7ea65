"""Where a recipe's pictures come from, and the size that they are brought to."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from madrigal.data.images import ImageFolderDataset, Size
from madrigal.data.manifest import PictureManifest
from madrigal.data.prepare import prepare_pictures
from madrigal.data.source import Say, Source, listing_of
from madrigal.errors import UserError

Side = Annotated[int, Field(ge=1)]


class PictureSource(Source):
    """Pictures, and how they are brought to one size."""

    path: Path = Field(description="a folder of pictures, a prepared folder or a manifest")
    image_size: Side | tuple[Side, Side] = Field(
        64, description="pixels a side, or height and width; pictures are resized to cover that and cropped"
    )
    flip: bool = Field(True, description="mirror half of the pictures in training")

    @property
    def size(self) -> Size:
        """Height and width."""
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size

    def datasets(
        self, *, multiple_of: int, prepared_in: Path, anew: bool = False, say: Say | None = None
    ) -> tuple[ImageFolderDataset, ImageFolderDataset | None]:
        """The training set, and the validation set where one is named; sides have to be multiples of `multiple_of`.

        A plain folder is prepared first, as recordings are.
        """
        height, width = self.size
        if height % multiple_of or width % multiple_of:
            raise UserError(
                f"data.image_size is {height} by {width}, and a token covers {multiple_of} pixels a side: "
                f"choose multiples of {multiple_of}."
            )

        def dataset(path: Path, name: str, *, train: bool) -> ImageFolderDataset:
            listed = pictures_of(path, prepared_in / name, anew=anew, say=say)
            return ImageFolderDataset(
                listed, self.size, train=train, flip=self.flip, rejected_path=prepared_in / name / "rejected.jsonl"
            )

        train = dataset(self.path, "train", train=True)
        return train, dataset(self.valid_path, "valid", train=False) if self.valid_path else None


def pictures_of(path: Path, prepared_in: Path, *, anew: bool = False, say: Say | None = None) -> PictureManifest:
    """The manifest of pictures at `path`, or the one that preparing this folder has left in `prepared_in`."""
    return listing_of(path, prepared_in, PictureManifest, prepare_pictures, anew=anew, say=say)
