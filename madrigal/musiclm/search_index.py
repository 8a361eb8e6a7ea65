"""An index of a folder of audio: one embedding for each file, kept on disk, so that only new files are heard.

    FOLDER/.madrigal/FINGERPRINT-SECONDS/embeddings.safetensors    [files, dim_latent]
                                        /manifest.jsonl            what each row is: path, size, time of change
                                        /graph.bin                 of a large folder, its graph of neighbours

The fingerprint is the model's and SECONDS the length of a piece: another model has an index of its own, and none can be
asked with embeddings that it does not know.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from madrigal.data.failures import DecodeError
from madrigal.data.layouts import FORMATS, find_files
from madrigal.data.manifest import read_lines, write_lines
from madrigal.errors import UserError
from madrigal.musiclm.embedding import PIECE_SECONDS, embedding_of_file
from madrigal.musiclm.mulan import MuLaN

HIDDEN, ROWS, FILES, GRAPH = ".madrigal", "embeddings.safetensors", "manifest.jsonl", "graph.bin"
EXACT = 50_000
"""Up to so many files every one is compared; above, a graph of neighbours (hnswlib) is asked where it is installed.

To make the graph takes longer than thousands of comparisons of everything, so it is made once and kept.
"""
SAVED_EVERY = 200
"""Files after which the index is written: who stops in the middle of a large folder goes on there."""


class Found(NamedTuple):
    """A file, relative to its folder, and its cosine with what was asked for."""

    path: str
    score: float


class SearchIndex:
    """The embeddings [files, dim] of a folder's audio files, in the order of `paths`; it is kept in `place`."""

    def __init__(self, folder: Path, paths: list[str], rows: Tensor, place: Path) -> None:
        self.folder, self.paths, self.rows, self.place = folder, paths, rows, place
        self.added = self.removed = 0
        self.unreadable: dict[str, str] = {}

    @classmethod
    def of(
        cls,
        folder: str | Path,
        mulan: MuLaN,
        *,
        piece_seconds: float = PIECE_SECONDS,
        keep_in: Path | None = None,
        progress: Callable[..., None] | None = None,
    ) -> "SearchIndex":
        """The index of a folder as it is now: what is new or has changed is embedded, what is gone is forgotten."""
        folder = Path(folder)
        check_folder(folder)
        files = [path for path in find_files(folder, FORMATS) if HIDDEN not in path.relative_to(folder).parts]
        if not files:
            raise UserError(f"{folder} holds no audio files ({', '.join(FORMATS)}); name another folder.")
        place = (keep_in or folder / HIDDEN) / f"{mulan.fingerprint()}-{piece_seconds:g}"
        known = _read(place, mulan.dim_latent)
        index = cls(folder, [], torch.zeros(0), place)
        records = []
        for path in files:
            try:
                records.append(_record(path, folder))
            except OSError as error:  # such as a link to nothing
                index.unreadable[str(path.relative_to(folder))] = error.strerror or str(error)
        rows: dict[str, Tensor] = {}
        new = [record for record in records if _key(record) not in known]
        if new:
            _check_place(place)
        for number, record in enumerate(new):
            try:
                path = folder / record["path"]
                rows[_key(record)] = embedding_of_file(mulan, path, piece_seconds=piece_seconds)
            except DecodeError as error:
                index.unreadable[record["path"]] = error.reason
            if rows and (number + 1) % SAVED_EVERY == 0:
                so_far = known | rows
                done = [one for one in records if _key(one) in so_far]
                _write(place, done, _stacked(done, so_far))
            if progress is not None:
                progress(number + 1, len(new))
        kept = [record for record in records if record["path"] not in index.unreadable]
        if not kept:
            raise UserError(f"None of the {len(files)} audio files of {folder} can be read.")
        index.paths = [record["path"] for record in kept]
        index.rows = _stacked(kept, known | rows)
        index.added = len(rows)
        index.removed = len(set(known) - {_key(record) for record in records})
        if index.added or index.removed or not (place / ROWS).is_file():
            _write(place, kept, index.rows)
        return index

    def __len__(self) -> int:
        return len(self.paths)

    def nearest(self, query: Tensor, count: int = 10) -> list[Found]:
        """The files that are most alike to `query` [dim], the best first."""
        count = min(count, len(self))
        if len(self) > EXACT and (graph := _graph(self.rows, self.place / GRAPH)) is not None:
            graph.set_ef(max(64, 2 * count))
            near, distances = graph.knn_query(query.cpu().float().numpy()[None], k=count)
            places, scores = near[0].tolist(), (1.0 - distances[0]).tolist()
        else:
            best = (self.rows @ query.cpu().float()).topk(count)
            places, scores = best.indices.tolist(), best.values.tolist()
        return [Found(self.paths[place], score) for place, score in zip(places, scores, strict=True)]


def _graph(rows: Tensor, file: Path) -> Any:
    """The graph of neighbours of `rows` [files, dim], kept in `file`; None where the library is missing."""
    try:
        import hnswlib
    except ImportError:
        return None
    graph = hnswlib.Index(space="ip", dim=rows.shape[1])
    if file.is_file():
        with suppress(RuntimeError):  # half a graph is made again
            graph.load_index(str(file), max_elements=len(rows))
            return graph
    graph.init_index(max_elements=len(rows), ef_construction=200, M=16, random_seed=0)
    graph.add_items(rows.numpy())
    beside = file.with_name(f".{file.name}")
    graph.save_index(str(beside))
    beside.replace(file)
    return graph


def _record(path: Path, folder: Path) -> dict[str, Any]:
    status = path.stat()
    return {"path": str(path.relative_to(folder)), "size": status.st_size, "changed": status.st_mtime_ns}


def _stacked(records: list[dict[str, Any]], rows: dict[str, Tensor]) -> Tensor:
    return torch.stack([rows[_key(record)] for record in records])


def _key(record: dict[str, Any]) -> str:
    return f"{record['path']}\n{record['size']}\n{record['changed']}"


def _read(place: Path, dim: int) -> dict[str, Tensor]:
    """Embeddings by what they are of; an index that cannot be read is made again."""
    if not (place / ROWS).is_file() or not (place / FILES).is_file():
        return {}
    try:
        rows = load_file(place / ROWS)["rows"]
        records = [record for _, record in read_lines(place / FILES)]
        if rows.shape != (len(records), dim):
            return {}
        return {_key(record): row for record, row in zip(records, rows, strict=True)}
    except (SafetensorError, OSError, KeyError, UserError):
        return {}


def _write(place: Path, records: list[dict[str, Any]], rows: Tensor) -> None:
    """The list goes first and comes last: half an index has another number of rows than names, and is made again."""
    with _kept_in(place):
        place.mkdir(parents=True, exist_ok=True)
        for old in (FILES, GRAPH):
            (place / old).unlink(missing_ok=True)
        beside = place / f".{ROWS}"
        save_file({"rows": rows.contiguous()}, beside)
        beside.replace(place / ROWS)
        write_lines(place / FILES, records)


def check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder} to search; name one that holds audio.")


def _check_place(place: Path) -> None:
    """Whether it can be written, before hours of listening."""
    with _kept_in(place):
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=place):
            pass


@contextmanager
def _kept_in(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise UserError(f"The index could not be kept in {place} ({error}); name a place with --index.") from error
