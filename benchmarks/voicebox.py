"""What Voicebox costs on one core: frames per CPU second in training and in sampling.

The reference configuration: dimension 256, 6 layers, 4 heads, features of 100 numbers, the vector of the flow's time of
four times the dimension; 8 rows of 500 frames in training; one row of 500 frames in sampling, by midpoint with 30 and
with 62 evaluations. `train` has no ids, `text` has 500 of them. The
reference has 11.4 million parameters, this one 13.7: those of the flow's time, which are used once a row.
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, precisions, run_part, share_told, tell, ways_to_train

from madrigal.voicebox.filling import fill
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.training import VoiceBoxTrainer

SIZE: dict[str, Any] = {"dim_in": 100, "dim": 256, "depth": 6, "heads": 4, "time_hidden_dim": 1024}
IDS: dict[str, Any] = {"num_cond_tokens": 500, "dim_cond_emb": 256, "cond_drop_prob": 0.2}
ROWS, FRAMES = 8, 500


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random features, with an id for each frame where there are ids."""

    def __init__(self, ids: bool) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        chance = torch.Generator().manual_seed(index)
        item = {"features": torch.randn(FRAMES, 100, generator=chance)}
        return {**item, "ids": torch.randint(500, (FRAMES,), generator=chance)} if self.ids else item


def model(ids: bool) -> VoiceBox:
    torch.manual_seed(0)
    # Without skips, as the other library is at its defaults.
    more = IDS if ids else {"condition_on_text": False}
    return VoiceBox(**SIZE, **more, use_unet_skips=False)


def train(name: str, folder: Path, other: Records) -> None:
    """Training in the precisions that there are, then compiled too."""
    known = {"train": "voicebox.train", "text": "voicebox.textcond.train"}[name]
    theirs = next((record["frames_per_cpu_s"] for record in other.get(known, [])), None)
    for word, precision, bits, is_compiled in ways_to_train():
        run = VoiceBoxTrainer(
            ConditionalFlowMatcherWrapper(model(name == "text")),
            dataset=Rows(name == "text"),
            num_train_steps=10**6,
            batch_size=ROWS,
            results_folder=folder / f"{name} {word}",
            mixed_precision=precision,
            compile=is_compiled,
        )
        for _ in range(3):
            run.train_step()
        cost = statistics.median(cpu_seconds(run.train_step) for _ in range(8))
        tell(f"{name} {word}", ROWS * FRAMES / cost, share_told(run, cost, bits), theirs, unit="frames")


def sample(_: str, folder: Path, other: Records) -> None:
    """One row by midpoint, the first fifth of it given, in the precisions that there are."""
    speaker = model(False).eval()
    given = {"context": torch.randn(1, FRAMES, 100), "context_mask": torch.arange(FRAMES)[None] < FRAMES // 5}
    for intervals in (15, 31):
        theirs = [r["frames_per_cpu_s"] for r in other.get("voicebox.sample", []) if r["nfe"] == 2 * intervals]
        for precision, _ in precisions():

            def call(steps: int = intervals, low: bool = precision == "bf16") -> None:
                with torch.autocast("cpu", torch.bfloat16, enabled=low):
                    assert fill(speaker, [FRAMES], **given, steps=steps).evaluations == 2 * steps

            cost = min(cpu_seconds(call) for _ in range(2))
            what = f"sample {precision}, {2 * intervals} evaluations"
            tell(what, FRAMES / cost, "one row", theirs[0] if theirs else None, unit="frames")


if __name__ == "__main__":
    run_part(__doc__, {"train": train, "text": train, "sample": sample})
