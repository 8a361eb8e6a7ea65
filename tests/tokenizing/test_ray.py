from __future__ import annotations

import sys

import pytest
from real_models import write_models
from toy_tokenizers import ToyTokenizer

from madrigal.errors import UserError
from madrigal.tokenizers.tokenizing import tokenize_manifest


@pytest.mark.slow
def test_a_local_cluster_of_two_workers_writes_the_same_bytes(manifest, tmp_path, contents):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'madrigal[ray]'")
    models = write_models(tmp_path / "models")
    tokenize_manifest(manifest, models, tmp_path / "one")
    seen = []
    made = tokenize_manifest(
        manifest, models, tmp_path / "ray", workers=2, ray="local", progress=lambda *n: seen.append(n)
    )
    assert [each.written for each in made] == [4, 4]
    assert contents(tmp_path / "ray") == contents(tmp_path / "one")
    assert seen[-1] == (14, 14)


def test_without_ray_the_sentence_says_what_to_install(manifest, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    models = write_models(tmp_path / "models")
    with pytest.raises(UserError, match=r"pip install 'madrigal\[ray\]'"):
        tokenize_manifest(manifest, models, tmp_path / "out", ray="local")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "127.0.0.1:99999", "nonsense"])
def test_a_cluster_that_is_not_there_gives_one_sentence(manifest, tmp_path, address):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'madrigal[ray]'")
    with pytest.raises(UserError, match=f"There is no Ray cluster at {address}") as caught:
        tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / "out", ray=address)
    assert "\n" not in str(caught.value)
