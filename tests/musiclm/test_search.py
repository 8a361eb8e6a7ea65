"""Search: what is found, what is heard only once, and what the command refuses."""

import json
from pathlib import Path

import pytest
import soundfile
import torch
from commanding import Command
from safetensors.torch import load_file
from small_mulans import PLAIN, RATE, caption, chord, mulan, pairs, recordings, trainer

from madrigal import MuLaN, UserError
from madrigal.musiclm import search_index
from madrigal.musiclm.embedding import embedding_of, embedding_of_file, embeddings_of_texts
from madrigal.musiclm.search_index import SearchIndex


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> MuLaN:
    """One that knows 16 chords by heart."""
    folder = tmp_path_factory.mktemp("mulan")
    data = pairs(16)
    made = trainer(folder, mulan(PLAIN), data, val_dataset=data, num_train_steps=30, batch_size=16, lr=3e-3)
    for _ in range(30):
        made.train_step()
    return made.model.eval()


@pytest.fixture(scope="module")
def exported(learned: MuLaN, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learned.save_pretrained(tmp_path_factory.mktemp("exported") / "mulan")


@pytest.fixture
def music(tmp_path: Path) -> Path:
    return recordings(tmp_path / "music", 16)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are embedded from now on."""
    names: list[str] = []

    def noted(mulan: MuLaN, path: Path, **options: float) -> torch.Tensor:
        names.append(path.name)
        return embedding_of_file(mulan, path, **options)

    monkeypatch.setattr(search_index, "embedding_of_file", noted)
    return names


def test_words_find_their_recordings(learned: MuLaN, music: Path) -> None:
    index = SearchIndex.of(music, learned)
    first = [index.nearest(row, 1)[0].path for row in embeddings_of_texts(learned, map(caption, range(16)))]
    assert sum(found == f"{number:02d}.wav" for number, found in enumerate(first)) >= 14
    scores = [found.score for found in index.nearest(index.rows[3], 5)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0, abs=1e-5)


def test_only_new_and_changed_files_are_heard(learned: MuLaN, music: Path, heard: list[str]) -> None:
    SearchIndex.of(music, learned)
    assert len(heard) == 16
    heard.clear()
    again = SearchIndex.of(music, learned)
    assert not heard
    assert (len(again), again.added, again.removed) == (16, 0, 0)
    soundfile.write(music / "deep.wav", chord(40).numpy(), RATE)
    soundfile.write(music / "05.wav", chord(50).numpy(), RATE, subtype="FLOAT")
    (music / "00.wav").unlink()
    changed = SearchIndex.of(music, learned)
    assert sorted(heard) == ["05.wav", "deep.wav"]
    assert (len(changed), changed.added, changed.removed) == (16, 2, 2)
    torch.testing.assert_close(
        changed.rows[changed.paths.index("05.wav")], embedding_of_file(learned, music / "05.wav"), atol=1e-5, rtol=1e-4
    )


def test_who_stops_goes_on_where_he_was(
    learned: MuLaN, music: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "SAVED_EVERY", 5)

    def stop(done: int, _: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SearchIndex.of(music, learned, progress=stop)
    heard.clear()
    assert len(SearchIndex.of(music, learned)) == 16
    assert len(heard) == 11


def test_an_index_belongs_to_a_model(learned: MuLaN, music: Path, heard: list[str]) -> None:
    SearchIndex.of(music, learned)
    other = mulan().eval()
    heard.clear()
    SearchIndex.of(music, other)
    assert len(heard) == 16
    assert len(list((music / ".madrigal").iterdir())) == 2
    heard.clear()
    SearchIndex.of(music, learned, piece_seconds=0.2)
    assert len(heard) == 16


def test_a_damaged_index_is_made_again(learned: MuLaN, music: Path, heard: list[str]) -> None:
    SearchIndex.of(music, learned)
    rows = next((music / ".madrigal").rglob("embeddings.safetensors"))
    assert load_file(rows)["rows"].shape == (16, learned.dim_latent)
    rows.write_bytes(b"nothing")
    heard.clear()
    assert len(SearchIndex.of(music, learned)) == 16
    assert len(heard) == 16


def test_a_file_that_cannot_be_read_is_told(learned: MuLaN, music: Path) -> None:
    (music / "broken.wav").write_bytes(b"no sound at all")
    index = SearchIndex.of(music, learned)
    assert list(index.unreadable) == ["broken.wav"]
    assert len(index) == 16


def test_links_to_nothing_and_files_of_no_samples_are_told(learned: MuLaN, music: Path) -> None:
    (music / "gone.wav").symlink_to(music / "nowhere.wav")
    soundfile.write(music / "nothing.wav", torch.zeros(0).numpy(), RATE)
    index = SearchIndex.of(music, learned)
    assert index.unreadable == {"gone.wav": "No such file or directory", "nothing.wav": "it has no samples"}
    assert len(index) == 16
    assert not {"gone.wav", "nothing.wav"} & {found.path for found in index.nearest(index.rows[0], 16)}
    with pytest.raises(UserError, match="it has no samples"):
        embedding_of_file(learned, music / "nothing.wav")


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_heard(
    learned: MuLaN, music: Path, heard: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match="--index"):
        SearchIndex.of(music, learned, keep_in=tmp_path / "file")
    assert not heard


def test_a_long_recording_is_the_mean_of_its_pieces(learned: MuLaN) -> None:
    first, second = chord(3), chord(9)
    whole = embedding_of(learned, torch.cat((first, second)), piece_seconds=0.5)
    parts = torch.stack([embedding_of(learned, wave, piece_seconds=0.5) for wave in (first, second)])
    torch.testing.assert_close(whole, torch.nn.functional.normalize(parts.mean(0), dim=0))
    tail = torch.cat((first, second[:100]))
    torch.testing.assert_close(embedding_of(learned, tail, piece_seconds=0.5), parts[0])


def test_a_graph_of_neighbours_finds_the_same_and_is_kept(
    learned: MuLaN, music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hnswlib = pytest.importorskip("hnswlib")
    index = SearchIndex.of(music, learned)
    exact = [found.path for found in index.nearest(index.rows[2], 3)]
    monkeypatch.setattr(search_index, "EXACT", 4)
    assert [found.path for found in index.nearest(index.rows[2], 3)] == exact
    graph = index.place / "graph.bin"
    assert graph.is_file()
    monkeypatch.setattr(hnswlib.Index, "init_index", None)  # it is not made again
    assert [found.path for found in SearchIndex.of(music, learned).nearest(index.rows[2], 3)] == exact
    (music / "00.wav").unlink()
    SearchIndex.of(music, learned)
    assert not graph.exists()  # it was of other files


def test_the_command_searches(exported: Path, music: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    search = Command(capsys, "search")
    said = json.loads(search.done(music, caption(5), "--run", exported, "--n", "3", "--json"))
    assert (said["files"], said["embedded"], len(said["results"])) == (16, 16, 3)
    assert "05.wav" in [found["path"] for found in said["results"]]
    again = json.loads(search.done(music, "--like", music / "07.wav", "--run", exported, "--json"))
    assert again["embedded"] == 0
    assert again["results"][0]["path"] == "07.wav"
    assert len(again["results"]) == 10
    lines = search.done(music, caption(1), "--run", exported, "--index", tmp_path / "kept").splitlines()
    assert len(lines) == 10
    assert (tmp_path / "kept").is_dir()


def test_the_command_refuses(exported: Path, music: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    search = Command(capsys, "search")
    assert "Say what to look for" in search.refused(music, "--run", exported)
    assert "no folder" in search.refused(tmp_path / "none", "piano", "--run", exported)
    assert "name one that holds audio" in search.refused(tmp_path / "none", "piano", "--run", "nowhere")
    assert "no file" in search.refused(music, "--like", tmp_path / "none.wav", "--run", exported)
    for seconds in ("nan", "inf", "1e300"):
        assert "'--seconds': Input should" in search.refused(music, "piano", "--run", exported, "--seconds", seconds)
    (tmp_path / "empty").mkdir()
    assert "holds no audio" in search.refused(tmp_path / "empty", "piano", "--run", exported)
    with pytest.raises(UserError, match="There is no model"):
        search_index.SearchIndex.of(music, MuLaN.from_pretrained(tmp_path / "none"))
