"""Alignments on disk, the verb that makes them, and the dataset that trainers read them by."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commanding import Command
from typer.testing import CliRunner
from voicebox_tones import HOP, RATE, SPEC, aligner, corpus, said, text_of

from madrigal.cli import app
from madrigal.data.manifest import Manifest
from madrigal.data.token_writing import close_folder, cut, open_folder, write_shard
from madrigal.data.tokens import PAD, TokenInfo
from madrigal.errors import UserError
from madrigal.voicebox import aligning
from madrigal.voicebox.aligner import Aligner
from madrigal.voicebox.aligning import align_manifest
from madrigal.voicebox.alignments import Alignments
from madrigal.voicebox.expand import expand
from madrigal.voicebox.finding import find_alignments
from madrigal.voicebox.source import AlignedDataset, AlignedSource, collate_aligned
from madrigal.voicebox.spoken import SpokenDataset


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return corpus(tmp_path_factory.mktemp("recordings"), 12)


@pytest.fixture(scope="module")
def model(recordings: Manifest) -> Aligner:
    """It has learned nothing, and aligns all the same."""
    made = aligner().eval()
    mels = [made.mels(said(text_of(number), number)[0][None])[0] for number in range(4)]
    lengths = torch.tensor([len(row) for row in mels])
    made.fit(torch.nn.utils.rnn.pad_sequence(mels, batch_first=True), lengths)
    return made


@pytest.fixture(scope="module")
def alignments(recordings: Manifest, model: Aligner, tmp_path_factory: pytest.TempPathFactory) -> Alignments:
    return align_manifest(model, recordings, tmp_path_factory.mktemp("aligned")).alignments


def test_a_row_is_what_the_aligner_says(recordings: Manifest, model: Aligner, alignments: Alignments) -> None:
    assert alignments.paths == [entry.path for entry in recordings]
    for number, path in enumerate(alignments.paths):
        row = alignments.row(path)
        symbols, _, _ = model.align_text(said(text_of(number), number)[0], text_of(number))
        assert row.symbols.equal(symbols)
        assert int(row.durations.min()) >= 1
        assert int(row.durations.sum()) == alignments.frames(path) == len(said(text_of(number), number)[0]) // HOP
        assert 0 < alignments.confidence(path) <= 1


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_it_goes_on_where_it_was_killed(
    recordings: Manifest, model: Aligner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("madrigal.data.token_writing.SHARD_ENTRIES", 5)
    whole = align_manifest(model, recordings, tmp_path / "whole")
    assert whole.written == 3
    true, calls = aligning._write_shard, []

    def killed(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return true(*arguments)

    monkeypatch.setattr(aligning, "_write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        align_manifest(model, recordings, tmp_path / "broken")
    with pytest.raises(UserError, match="no finished alignments"):
        Alignments.open(next((tmp_path / "broken").iterdir()))
    monkeypatch.setattr(aligning, "_write_shard", true)
    again = align_manifest(model, recordings, tmp_path / "broken")
    assert again.written == 2
    assert files(again.alignments.folder) == files(whole.alignments.folder)
    (again.alignments.folder / "shard-00001.npy").write_bytes(b"spoiled")
    with pytest.raises(UserError, match=r"shard-00001\.npy are damaged"):
        Alignments.open(again.alignments.folder).row(recordings.entries[6].path)
    assert align_manifest(model, recordings, tmp_path / "broken").written == 1
    assert files(again.alignments.folder) == files(whole.alignments.folder)


def test_what_cannot_be_aligned_is_listed_with_its_reason(recordings: Manifest, model: Aligner, tmp_path: Path) -> None:
    spoiled: list[dict[str, Any]] = [
        {"text": None},
        {"text": "a中b"},
        {"text": "abcdef" * 30},
        {"path": "gone.wav"},
    ]
    entries = [entry.model_copy(update=change) for entry, change in zip(recordings, spoiled, strict=False)]
    manifest = Manifest(recordings.root, [*entries, *recordings.entries[4:]])
    done = align_manifest(model, manifest, tmp_path)
    found = done.alignments
    assert len(found) == 8
    reasons = [found.failed[entry.path] for entry in entries]
    assert reasons[0] == "it has no text"
    assert "cannot be said" in reasons[1]
    assert "its text has 182 symbols" in reasons[2]
    assert reasons[3]
    assert found.info.failed == 4
    assert "4 files have no alignments (1: " in done.summary
    with pytest.raises(UserError, match="it has no text"):
        found.row(entries[0].path)
    dataset = AlignedDataset(manifest, found)
    assert len(dataset) == 8
    assert dataset.left_out.keys() == {entry.path for entry in entries}


def test_what_can_be_aligned_is_what_is_learned_from(
    recordings: Manifest, model: Aligner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rule for both: a text with as many symbols as there are whole frames, and no recording that is too long."""
    changed = []
    for entry, more in zip(recordings.entries[:3], (0, 1, None), strict=True):
        frames = int(entry.duration * model.config.frame_rate + 1e-6)
        change: dict[str, Any] = {"text": "ab" * 500} if more is None else {"text": ("ab" * 500)[: frames - 2 + more]}
        changed.append(entry.model_copy(update=change))
    long = recordings.entries[3].model_copy(update={"duration": 50.0})
    manifest = Manifest(recordings.root, [*changed, long, *recordings.entries[4:6]])
    monkeypatch.setattr("madrigal.voicebox.spoken.MOST_SECONDS", 20.0)
    aligned = align_manifest(model, manifest, tmp_path).alignments
    learned = SpokenDataset(manifest, model)
    assert learned.left_out == aligned.failed
    assert list(learned.left_out) == [changed[1].path, changed[2].path, long.path]
    assert learned.left_out[long.path] == "it has 50 seconds, and 20 at most are aligned"


def test_a_device_that_is_not_here_is_one_sentence(
    recordings: Manifest, model: Aligner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save_pretrained(tmp_path / "aligner")
    words = ("align", tmp_path / "aligner", recordings.root, "-o", tmp_path / "out", "--device", "nowhere")
    assert "The device 'nowhere' cannot be used here" in Command(capsys).refused(*words)


def test_another_text_or_another_aligner_has_another_folder(
    recordings: Manifest, model: Aligner, alignments: Alignments
) -> None:
    other = [recordings.entries[0].model_copy(update={"text": "abc"}), *recordings.entries[1:]]
    changed = align_manifest(model, Manifest(recordings.root, other), alignments.folder.parent)
    assert changed.alignments.folder != alignments.folder
    # The texts say which is meant.
    found = find_alignments(alignments.folder.parent, recordings)
    assert isinstance(found, Alignments)
    assert found.folder == alignments.folder
    align_manifest(aligner(3), recordings, alignments.folder.parent)
    with pytest.raises(UserError, match="several aligners"):
        find_alignments(alignments.folder.parent, recordings)
    assert find_alignments(alignments.folder, recordings, (RATE, HOP)).frames(recordings.entries[0].path) > 0


def test_other_frames_are_refused(recordings: Manifest, alignments: Alignments, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.hop=100"):
        find_alignments(alignments.folder, recordings, (RATE, 100))
    with pytest.raises(UserError, match="no finished alignments"):
        find_alignments(tmp_path, recordings)


@pytest.mark.parametrize("seed", range(4))
def test_a_crop_has_its_sound_its_ids_and_its_symbols(recordings: Manifest, alignments: Alignments, seed: int) -> None:
    dataset = AlignedDataset(recordings, alignments, max_seconds=0.25)
    whole = AlignedDataset(recordings, alignments)
    item, everything = dataset.draw(3, np.random.default_rng(seed)), whole[3]
    assert item["audio"].shape == (1, 25 * HOP)
    assert dataset.seconds(3) == 0.25
    assert whole.seconds(3) == everything["audio"].shape[1] / RATE
    starts = [
        start
        for start in range(everything["ids"].numel() - 24)
        if everything["audio"][0, start * HOP : (start + 25) * HOP].equal(item["audio"][0])
    ]
    assert len(starts) == 1
    assert item["ids"].equal(everything["ids"][starts[0] : starts[0] + 25])
    assert expand(item["symbols"][None], item["durations"][None])[0].equal(item["ids"])
    assert item["speaker"] == "b"
    assert whole.tokens(3) == len(everything["symbols"])


def test_VB15_a_batch_says_what_is_padding(recordings: Manifest, alignments: Alignments) -> None:
    dataset = AlignedDataset(recordings, alignments)
    items = [dataset[index] for index in range(4)]
    batch = collate_aligned(items)
    for row, item in enumerate(items):
        frames, symbols = len(item["ids"]), len(item["symbols"])
        assert int(batch["lengths"][row]) == frames * HOP
        assert int(batch["ids_lengths"][row]) == frames
        assert int(batch["symbols_lengths"][row]) == symbols
        assert set(batch["ids"][row, frames:].tolist()) <= {PAD}
        assert set(batch["symbols"][row, symbols:].tolist()) <= {PAD}
        assert int(batch["durations"][row].sum()) == frames
    assert batch["speaker"] == ["a", "b", "a", "b"]


def test_a_source_leaves_out_what_was_hardly_recognised(
    recordings: Manifest, alignments: Alignments, tmp_path: Path
) -> None:
    sure = sorted(alignments.confidence(path) for path in alignments.paths)
    told: list[str] = []
    source = AlignedSource(path=recordings.root, alignments=alignments.folder, min_confidence=sure[4])
    train, valid = source.datasets((RATE, HOP), prepared_in=tmp_path, say=told.append, audio=False)
    assert valid is None
    assert len(train) == 8
    assert told == [
        f"4 of 12 recordings of {recordings.root} are left out (4: aligned with a confidence below {sure[4]:g})"
    ]
    assert train[0].keys() == {"symbols", "durations", "speaker"}


def test_semantic_tokens_have_their_durations_for_free(recordings: Manifest, tmp_path: Path) -> None:
    info = TokenInfo(kind="stub", fingerprint="a" * 16, frame_rate=50.0, codebook_size=9)
    folder = open_folder(tmp_path, info, recordings)
    rows = {entry.path: np.arange(round(entry.duration * 50)) // 3 % 9 for entry in recordings}
    shards = [
        write_shard(folder, number, info, entries, lambda entry: rows[entry.path])
        for number, entries in enumerate(cut(recordings))
    ]
    close_folder(folder, info, recordings, shards)
    dataset = AlignedDataset(recordings, find_alignments(folder, recordings, (RATE, HOP)))
    item = dataset[2]
    tokens = rows[recordings.entries[2].path]
    assert item["ids"].tolist() == np.repeat(tokens, 2)[: len(item["ids"])].tolist()
    assert set(item["durations"][:-1].tolist()) == {6}
    with pytest.raises(UserError, match="no frames of their own"):
        find_alignments(folder, recordings)


def test_the_verb_writes_alignments_and_textgrids(recordings: Manifest, model: Aligner, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "aligner")
    out, grids = tmp_path / "out", tmp_path / "grids"
    arguments = ["align", tmp_path / "aligner", recordings.root, "-o", out, "--textgrid", grids, "--json"]
    told = CliRunner().invoke(app, [str(word) for word in arguments])
    assert told.exit_code == 0, told.output
    figures = json.loads(told.stdout)
    assert figures["entries"] == 12
    assert figures["written"] == 1
    assert figures["symbols"]["text"]["alphabet"] == SPEC["text"]["alphabet"]  # type: ignore[index]
    found = Alignments.open(figures["folder"])
    path = recordings.entries[0].path
    lines = [line.strip() for line in (grids / path).with_suffix(".TextGrid").read_text().splitlines()]
    seconds = found.frames(path) * HOP / RATE
    assert f"xmax = {seconds:.6f}" in lines
    assert f"intervals: size = {found.size(path)}" in lines
    assert [line for line in lines if line == f'text = "{text_of(0).split()[0]}"']
    # Every interval begins where the one before it ends.
    edges = [
        float(line.split()[-1]) for line in lines[lines.index("intervals [1]:") :] if line.startswith(("xmin", "xmax"))
    ]
    first_tier = edges[: edges.index(seconds) + 1]
    assert first_tier[1:-1:2] == first_tier[2::2]
