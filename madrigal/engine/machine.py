"""Sets the process up for speed, and measures what the machine can do.

On a CPU the time of a training step goes to the memory allocator as much as to arithmetic: glibc gives every
large tensor back to the kernel and asks for it again, page by page. Raising its thresholds keeps the pages.
"""

import contextlib
import ctypes
import functools
import os
import platform
import time
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Bf16 = bool | Literal["auto"]
BF16 = "compute in 16 bits: faster on a CPU that has them, else slower; auto: if it has them"

# The numbers of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8


def keep_memory() -> bool:
    """Tell glibc never to give pages back. False where there is no glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_TOP_PAD: 64 * 2**20, _M_ARENA_MAX: 1}
    return all(mallopt(option, value) == 1 for option, value in settings.items())


def give_memory_back() -> None:
    """Hand pages that hold nothing to the kernel, for a process that works now and then and must not grow."""
    with contextlib.suppress(AttributeError, OSError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)


def keep_few_kernels(count: int = 64) -> None:
    """Before the first product: for every length that they meet, oneDNN and torch's layer over it each keep a kernel.

    Each keeps a thousand if it may. They are worth keeping where lengths come again, as in training; where each
    sentence has its own they only fill memory, in bfloat16 hundreds of megabytes. What the environment says stands.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(count))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(count))  # torch's, where products are in bfloat16


@functools.cache
def prepare_process() -> None:
    """Allocator, denormals and threads, once a process; harmless where a GPU does the work."""
    import torch

    keep_memory()
    torch.set_flush_denormal(True)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(usable_cores())


def usable_cores() -> int:
    """Cores that this process may run on, shared among the processes that a launcher started here."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@functools.cache
def has_bf16(device: str) -> bool:
    """Whether a kind of device computes in bfloat16 itself; a CPU that does not only pretends to, slowly."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported()
    return any(
        bool(getattr(torch.cpu, name, bool)()) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )


def computing_in_bf16(device: str, wanted: "Bf16") -> "torch.autocast":
    """Inside, models compute in bfloat16 if it is wanted, and in their own precision if not."""
    import torch

    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16, enabled=has_bf16(kind) if wanted == "auto" else wanted)


@functools.cache
def matmul_rate(device: str, bits: int) -> float:
    """Floating-point operations per second of a large matrix product on this machine, measured now."""
    import torch

    dtype = torch.bfloat16 if bits == 16 else torch.float32
    kind = torch.device(device).type  # the device of a rank is "cpu:1"
    size = 1024 if kind == "cpu" else 8192
    left = torch.ones(size, size, dtype=dtype, device=device)
    # On a CPU the thread's own time: what others do meanwhile is not the machine's rate.
    clock = time.thread_time if kind == "cpu" else time.perf_counter
    rates = []
    for _ in range(6):
        start = clock()
        torch.mm(left, left)
        if kind == "cuda":
            torch.cuda.synchronize()
        rates.append(2 * size**3 / (clock() - start))
    return max(rates)


def environment() -> dict[str, Any]:
    """What a run was made on, for `environment.json`."""
    import torch

    from madrigal import __version__

    return {
        "madrigal": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": usable_cores(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
