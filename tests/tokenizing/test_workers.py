from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from real_models import write_models
from toy_tokenizers import ToyTokenizer

from madrigal.data.audio import read
from madrigal.errors import UserError
from madrigal.tokenizers.loading import load_codec, load_tokenizer
from madrigal.tokenizers.tokenizing import tokenize_manifest

HERE = Path(__file__).parent


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def test_real_models_by_name_and_two_workers_like_one(manifest, models, tmp_path, contents, monkeypatch):
    semantic, acoustic = tokenize_manifest(manifest, models, tmp_path / "one")
    tokenizer, codec = load_tokenizer(models[0]), load_codec(models[1])
    assert semantic.shards.info.fingerprint == tokenizer.fingerprint()
    assert (acoustic.shards.info.quantizers, acoustic.shards.info.groups) == (4, 2)
    torch.set_num_threads(1)
    for path in ("1.wav", "2.wav"):
        wave = read(manifest.root / path, sample_rate=16000, channels=1)
        np.testing.assert_array_equal(semantic.shards.tokens(path), tokenizer.tokenize(wave)[0][0])
        np.testing.assert_array_equal(acoustic.shards.tokens(path), codec.tokenize(wave[None])[0])
    # Names below the working folder, as they are given on the command line.
    monkeypatch.chdir(tmp_path)
    tokenize_manifest(manifest, ["models/tokenizer", "models/codec"], "two", workers=2)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_a_killed_parent_takes_its_workers_along_and_what_is_left_goes_on(manifest, tmp_path, contents):
    code = (
        "import sys; from pathlib import Path\n"
        "from madrigal.data.manifest import Manifest; from madrigal.data import token_writing\n"
        "from madrigal.tokenizers.tokenizing import tokenize_manifest; from toy_tokenizers import ToyTokenizer\n"
        "if __name__ == '__main__':\n"
        "    token_writing.SHARD_ENTRIES = 2\n"
        "    tokenize_manifest(Manifest.load(sys.argv[1]), [ToyTokenizer(pause=0.3)], sys.argv[2], workers=2)\n"
    )
    (tmp_path / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}"}
    command = [sys.executable, str(tmp_path / "script.py"), str(manifest.root), str(tmp_path / "out")]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        wait_for(lambda: any((tmp_path / "out").glob("*/shard-*.json")))
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not session(process.pid))
    assert not list((tmp_path / "out").glob("*/tokens.json"))
    for out in ("out", "whole"):
        (made,) = tokenize_manifest(manifest, [ToyTokenizer()], tmp_path / out)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert made.written == 4


def test_a_worker_that_dies_or_finds_a_mistake_ends_with_one_sentence(manifest, tmp_path):
    with pytest.raises(UserError, match="A process that makes tokens died") as caught:
        tokenize_manifest(manifest, [ToyTokenizer(deadly=True)], tmp_path / "out", workers=2)
    assert "\n" not in str(caught.value)


def wait_for(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def session(number: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(sid) == number and state != "Z":
            found.append(int(stat.parent.name))
    return found
