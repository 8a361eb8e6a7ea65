"""The line that a person watches: step, loss terms, throughput, share of the machine, time left."""

import sys
import time
from typing import TextIO


class Progress:
    """Redraws one line on a terminal; elsewhere prints a plain line every `seconds` seconds.

    Throughput is taken over the time since the last line, so a slow validation does not blur it for long.
    """

    def __init__(self, total: int, unit: str, *, seconds: float = 10.0, out: TextIO | None = None) -> None:
        self.total, self.unit = total, unit
        self.out = out if out is not None else sys.stderr
        self.is_terminal = self.out.isatty()
        self.interval = 0.5 if self.is_terminal else seconds
        self.units_per_second = 0.0
        self.flops_per_second = 0.0
        self._steps = 0
        self._units = self._flops = 0.0
        self._since = self._started = time.perf_counter()
        self._first_step: int | None = None

    def restart_clock(self) -> None:
        """What was between two steps (validation, a checkpoint) does not count as training."""
        self._since = time.perf_counter()
        self._steps, self._units, self._flops = 0, 0.0, 0.0

    def step(self, step: int, values: dict[str, float], units: float, flops: float, machine: float) -> None:
        """Note a finished step; `machine` is the measured rate of matrix products."""
        if self._first_step is None:
            self._first_step = step - 1
        self._steps += 1
        self._units += units
        self._flops += flops
        elapsed = time.perf_counter() - self._since
        if elapsed < self.interval and step < self.total:
            return
        self.units_per_second, self.flops_per_second = self._units / elapsed, self._flops / elapsed
        self._show(self._line(step, values, elapsed, machine))
        self.restart_clock()

    def _line(self, step: int, values: dict[str, float], elapsed: float, machine: float) -> str:
        terms = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        share = f"  {100 * self.flops_per_second / machine:.0f}% of matmul rate" if self._flops else ""
        left = (self.total - step) * elapsed / max(1, self._steps)
        speed = f"{self.units_per_second:.4g} {self.unit}/s"
        return f"step {step}/{self.total}  {terms}  {speed}{share}  {clock(left)} left"

    def say(self, text: str) -> None:
        """A line that stays."""
        self.out.write(("\r\x1b[2K" if self.is_terminal else "") + text + "\n")
        self.out.flush()

    def _show(self, line: str) -> None:
        if self.is_terminal:
            self.out.write("\r\x1b[2K" + line)
            self.out.flush()
        else:
            self.say(line)

    def close(self) -> None:
        if self.is_terminal:
            self.out.write("\n")
            self.out.flush()


def clock(seconds: float) -> str:
    """`1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def tell(text: str) -> None:
    """A line for the person who watches, before there is a bar or where there is none."""
    print(text, file=sys.stderr, flush=True)
