"""Where a recipe's recordings come from, and how they are cut."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from madrigal.data.dataset import SoundDataset
from madrigal.data.manifest import MANIFEST, Listing, Manifest, read_lines, write_lines
from madrigal.data.prepare import Prepared, prepare

SOURCE = "source.jsonl"
Say = Callable[[str], object]
AnyListing = TypeVar("AnyListing", bound=Listing[Any])


class Source(BaseModel):
    """The `data` of a recipe; a path alone is enough: `data=FOLDER` is short for `data.path=FOLDER`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: Path = Field(description="a folder of audio, a prepared folder or a manifest")
    valid_path: Path | None = Field(None, description="a validation set; else a share of the data is held out")

    @model_validator(mode="before")
    @classmethod
    def _a_path_is_enough(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str | Path) else value


class AudioSource(Source):
    """Recordings, and how they are cut into crops."""

    max_length_seconds: float | None = Field(None, gt=0, description="length of a crop; none takes whole files")
    gain_db: tuple[float, float] = Field((0.0, 0.0), description="range of the random gain")

    def datasets(
        self,
        sample_rate: int | tuple[int, ...],
        *,
        multiple_of: int | tuple[int | None, ...],
        channels: int,
        fields: Sequence[str] = (),
        prepared_in: Path,
        anew: bool = False,
        say: Say | None = None,
    ) -> tuple[SoundDataset, SoundDataset | None]:
        """The training set, and the validation set where one is named.

        A plain folder is prepared first: its manifest and its rejected files lie in `prepared_in`, and stay the same
        from then on unless it is to be done `anew`.
        """
        first = sample_rate[0] if isinstance(sample_rate, tuple) else sample_rate
        length = None if self.max_length_seconds is None else int(self.max_length_seconds * first)

        def dataset(path: Path, name: str, gain_db: tuple[float, float]) -> SoundDataset:
            return SoundDataset(
                manifest_of(path, prepared_in / name, anew=anew, say=say),
                sample_rate,
                max_length=length,
                seq_len_multiple_of=multiple_of,
                channels=channels,
                gain_db=gain_db,
                fields=fields,
                rejected_path=prepared_in / name / "rejected.jsonl",
            )

        train = dataset(self.path, "train", self.gain_db)
        return train, dataset(self.valid_path, "valid", (0.0, 0.0)) if self.valid_path else None


def manifest_of(path: Path, prepared_in: Path, *, anew: bool = False, say: Say | None = None) -> Manifest:
    """The manifest at `path`, or the one that preparing this folder has left in `prepared_in`."""
    return listing_of(path, prepared_in, Manifest, prepare, anew=anew, say=say)


def listing_of(
    path: Path,
    prepared_in: Path,
    kind: type[AnyListing],
    prepared: Callable[[Path, Path], Prepared],
    *,
    anew: bool = False,
    say: Say | None = None,
) -> AnyListing:
    """The list of a `kind` at `path`, or the one that having this folder `prepared` has left in `prepared_in`."""
    if path.is_file() or (path / MANIFEST).is_file():
        return kind.load(path)
    if anew or not (prepared_in / MANIFEST).is_file() or _source(prepared_in) != str(path):
        done = prepared(path, prepared_in)
        write_lines(prepared_in / SOURCE, [{"path": str(path)}])
        if say is not None:
            say(done.summary)
    return kind.load(prepared_in)


def _source(prepared_in: Path) -> str | None:
    """The folder that the manifest in `prepared_in` was made from."""
    if not (prepared_in / SOURCE).is_file():
        return None
    return next((str(record.get("path")) for _, record in read_lines(prepared_in / SOURCE)), None)
