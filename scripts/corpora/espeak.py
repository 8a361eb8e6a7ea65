"""SYNTHETIC English speech: Debian's espeak-ng (GPL-3), a formant synthesiser, at 22.05 kHz.

Clear and far from human: what any other voice has to be better than. It is unpacked, not installed.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from packages import debian_package

PACKAGES = ("libespeak-ng1", "espeak-ng-data", "libpcaudio0", "libsonic0")
RATE = 22_050


def speak(text: str, cache: Path, voice: str = "en-us") -> np.ndarray:
    """Mono audio [samples] at 22.05 kHz of a sentence."""
    program = debian_package("espeak-ng", cache) / "usr/bin/espeak-ng"
    libraries = [place for name in PACKAGES for place in (debian_package(name, cache) / "usr/lib").iterdir()]
    (data,) = (place for place in libraries if (place / "espeak-ng-data").is_dir())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        done = subprocess.run(
            [str(program), "-v", voice, "-w", str(path), "--", text],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
                "ESPEAK_DATA_PATH": str(data),
            },
            capture_output=True,
            text=True,
        )
        if done.returncode:
            # Its sound library is linked with PulseAudio's, which draws in too much to be unpacked beside it.
            install = "; install it with: apt-get install libpulse0" if "libpulse" in done.stderr else ""
            raise SystemExit(f"espeak-ng does not run ({done.stderr.strip()}){install}")
        audio, rate = soundfile.read(path, dtype="float32")
    if rate != RATE:
        raise ValueError(f"The espeak voice '{voice}' speaks at {rate} Hz, not at {RATE}.")
    return audio
