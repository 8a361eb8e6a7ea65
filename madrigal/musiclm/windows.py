"""Which parts of a recording an embedding is made of: a window for every second."""


def window_starts(samples: int, rate: int, seconds: float) -> tuple[list[int], int]:
    """The first sample of the window of every begun second, and the samples of a window.

    A window that would reach past the end lies at the end; a recording that is shorter than a window is one.
    """
    size = max(1, min(samples, round(seconds * rate)))
    return [min(start, samples - size) for start in range(0, max(samples, 1), rate)], size
