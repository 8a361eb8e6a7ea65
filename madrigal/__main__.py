"""The command from its first moment: until it is loaded, Ctrl-C leaves at once and is told in a line."""

import os
import signal
from types import FrameType

STOPPED = 130
"""The status of a command that was stopped by Ctrl-C."""


def _stop(_: int, __: FrameType | None) -> None:
    os.write(2, b"madrigal: stopped.\n")
    os._exit(STOPPED)  # an import that is broken off half-way would say so in words of its own


def main() -> None:
    """What `madrigal` and `python -m madrigal` run."""
    signal.signal(signal.SIGINT, _stop)
    from madrigal.cli import main as command

    command()


if __name__ == "__main__":
    main()
