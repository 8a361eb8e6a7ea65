"""What MuLaN costs on one core: samples of sound per CPU second in training.

The reference configuration: dimension 256, 6 layers and 4 heads on both sides; 16 pairs of 2 seconds at 16 kHz and 64
of 49,408 ids; windows of 24 samples every 12, patches of 16 by 16, a quarter of them left out. The reference has 65
linear bins and so 4 rows of patches; here are 64 mel bands, and as many patches. It
has 22.3 million parameters, this one 22.2.
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, precisions, run_part, tell

from madrigal.engine.machine import matmul_rate
from madrigal.musiclm.audio_transformer import AudioSpectrogramTransformer
from madrigal.musiclm.mulan import MuLaN
from madrigal.musiclm.mulan_trainer import MuLaNTrainer
from madrigal.musiclm.text_transformer import TextTransformer

SIZE: dict[str, Any] = {"dim": 256, "depth": 6, "heads": 4, "dim_head": 64}
SPECTRA: dict[str, Any] = {"spec_n_fft": 128, "spec_win_length": 24, "spec_n_mels": 64, "spec_aug_stretch_factor": 0.8}
ROWS, SAMPLES, TEXT = 16, 32000, 64


class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Noise, and random ids."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        chance = torch.Generator().manual_seed(index)
        return torch.randn(SAMPLES, generator=chance) * 0.1, torch.randint(1, 20000, (TEXT,), generator=chance)


def train(name: str, folder: Path, other: Records) -> None:
    """Training in the precisions that there are, or in chunks."""
    theirs = next((SAMPLES * record["pairs_per_cpu_s"] for record in other.get("mulan.train", [])[-1:]), None)
    for precision, bits in precisions():
        torch.manual_seed(0)
        run = MuLaNTrainer(
            MuLaN(AudioSpectrogramTransformer(**SIZE, **SPECTRA), TextTransformer(**SIZE)),
            Pairs(),
            num_train_steps=10**6,
            batch_size=ROWS,
            chunk_size=4 if name == "chunks" else None,
            results_folder=folder / f"{name} {precision}",
            mixed_precision=precision,
        )
        run.train_step()
        cost = statistics.median(cpu_seconds(run.train_step) for _ in range(4))
        share = run.step_flops / cost / matmul_rate("cpu", bits)
        more = f"{100 * share:.0f} % of the matmul rate"
        tell(f"{name} {precision}", ROWS * SAMPLES / cost, more, theirs, "samples")


if __name__ == "__main__":
    run_part(__doc__, {"mulan": train, "chunks": train})
