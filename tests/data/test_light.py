from __future__ import annotations

import subprocess
import sys


def test_the_room_itself_imports_nothing_heavy():
    code = "import sys, madrigal.data; print([m for m in ('torch', 'numpy', 'soundfile', 'PIL') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
