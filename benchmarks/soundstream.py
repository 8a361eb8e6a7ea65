"""What a SoundStream step, encoding and decoding cost on one core, and how that grows.

The reference configuration: 16 channels, strides 2, 4, 5, 8 at 16 kHz, 8 codebooks of 1024, three waveform
discriminators and the complex STFT discriminator, a gradient penalty every fourth step, four clips of one second.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch
from measuring import Records, beside, cpu_seconds, precisions

from madrigal import SoundStream, SoundStreamTrainer
from madrigal.engine.machine import matmul_rate, prepare_process

REFERENCE = {"codebook_size": 1024, "rq_num_quantizers": 8, "strides": (2, 4, 5, 8), "channels": 16}
RATE = 16000


def recordings(folder: Path, count: int = 40, seconds: float = 5.0) -> Path:
    """Harmonic tones with a moving level, so that no clip is like another."""
    rng = np.random.default_rng(0)
    time_axis = np.arange(int(seconds * RATE)) / RATE
    for number in range(count):
        pitch, beat = rng.uniform(80, 800), rng.uniform(1, 5)
        wave = sum(np.sin(2 * np.pi * pitch * k * time_axis + rng.uniform(0, 6)) / k for k in range(1, 6))
        wave = 0.2 * wave * (0.5 + 0.5 * np.sin(2 * np.pi * beat * time_axis))
        wave += 0.01 * rng.standard_normal(len(wave))
        soundfile.write(folder / f"{number:03d}.wav", wave.astype(np.float32), RATE)
    return folder


def trainer(folder: Path, batch_size: int, seconds: float, precision: str = "fp32") -> SoundStreamTrainer:
    torch.manual_seed(0)
    return SoundStreamTrainer(
        SoundStream(**REFERENCE),
        folder=folder / "audio",
        batch_size=batch_size,
        data_max_length_seconds=seconds,
        grad_accum_every=1,
        num_train_steps=10**6,
        results_folder=folder / f"run-{batch_size}-{seconds}-{precision}",
        mixed_precision=precision,
    )


def step(folder: Path, other: Records) -> None:
    """One step, with and without the gradient penalty, in float32 and bfloat16; medians of two cycles of four."""
    for precision, bits in precisions():
        run = trainer(folder, 4, 1.0, precision)
        run.train_step()
        costs: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(8):
            penalised = run.step % 4 == 0
            costs[penalised].append(cpu_seconds(run.train_step))
        plain, penalty = statistics.median(costs[False]), statistics.median(costs[True])
        cycle = (3 * plain + penalty) / 4
        rate = matmul_rate("cpu", bits)
        limit = run.step_flops / rate
        print(f"step {precision}: {plain:.2f} CPU s, {penalty:.2f} with penalty, {cycle:.2f} on average", flush=True)
        print(f"step {precision}: {plain / limit:.2f} times the limit of {limit:.2f} s at {rate / 1e9:.0f} GFLOP/s")
        for record in other.get("soundstream.train_step", [])[:1]:
            theirs = (3 * statistics.median(record["cpu_nogp"]) + statistics.median(record["cpu_gp"])) / 4
            print(f"step {precision}: beside {theirs:.2f} CPU s: {cycle / theirs:.3f} of it", flush=True)


def codec(_: Path, other: Records) -> None:
    """Encode and decode ten seconds."""
    model = SoundStream(**REFERENCE, discriminators=False).eval()
    wave = torch.randn(1, 10 * RATE) * 0.1
    with torch.no_grad():
        codes = model.tokenize(wave)
        encode = statistics.median(cpu_seconds(lambda: model.tokenize(wave)) for _ in range(10))
        decode = statistics.median(cpu_seconds(lambda: model.decode_from_codebook_indices(codes)) for _ in range(10))
    print(f"codec: encode {encode:.3f} and decode {decode:.3f} CPU s for 10 s of audio, {10 / (encode + decode):.1f}x")
    for record in other.get("soundstream.tokenize", [])[:1]:
        theirs = record["te"]["cpu_median"] + record["td"]["cpu_median"]
        print(f"codec: beside {theirs:.3f} CPU s: {(encode + decode) / theirs:.3f} of it")


def growth(folder: Path, _: Records) -> None:
    """A plain step for clips and batches of several sizes, and its cost per second of audio."""
    for batch_size, seconds in ((1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0), (4, 0.5), (4, 2.0), (4, 4.0)):
        run = trainer(folder, batch_size, seconds)
        run.train_step()
        cost = min(cpu_seconds(run.train_step) for _ in range(2))
        print(
            f"growth: batch {batch_size}, {seconds:g} s: {cost:.2f} CPU s, "
            f"{cost / (batch_size * seconds):.2f} for a second of audio",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["step", "codec", "growth"])
    parser.add_argument("--beside", help="a command that measures another library and prints REC lines")
    arguments = parser.parse_args()
    prepare_process()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "audio").mkdir()
        recordings(folder / "audio")
        parts = {"step": step, "codec": codec, "growth": growth}
        parts[arguments.part](folder, beside(arguments.beside))


if __name__ == "__main__":
    main()
