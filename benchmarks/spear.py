"""What SPEAR-TTS costs on one core: tokens of source and target per CPU second in training, and tokens in generation.

The reference configuration: dimension 256, 4 layers of encoder and of decoder, 4 heads; 256 text ids, 500 semantic ids;
8 rows of 512 semantic and 128 text tokens in training; one row of 64 text tokens to 512 semantic ones in generation. An
early exit after two layers where text becomes speech.
"""

import statistics
from pathlib import Path
from typing import Any

import torch
from measuring import Records, cpu_seconds, run_part, share_told, tell, ways_to_train

from madrigal.layers.sampling import Sampling
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.trainer import SpearTrainer
from madrigal.speartts.training import SemanticToTextTrainer, SpeechSpeechPretrainer, TextToSemanticTrainer

SIZE: dict[str, Any] = {"dim": 256, "source_depth": 4, "target_depth": 4, "heads": 4}
IDS: dict[str, Any] = {"num_text_token_ids": 256, "num_semantic_token_ids": 500}
ROWS, SPEECH, TEXT, DRAWN = 8, 512, 128, 512
TRAINERS: dict[str, type[SpearTrainer]] = {
    "ss": SpeechSpeechPretrainer,
    "s2t": SemanticToTextTrainer,
    "t2s": TextToSemanticTrainer,
}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random ids, no two of which repeat: 512 of speech and 128 of text to a row."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        chance = torch.Generator().manual_seed(index)
        return {
            "semantic": torch.randint(1, 500, (SPEECH,), generator=chance).cumsum(0) % 500,
            "text_ids": torch.randint(0, 256, (TEXT,), generator=chance),
        }


def model(name: str) -> TextToSemantic:
    torch.manual_seed(0)
    return TextToSemantic(**SIZE, **IDS, target_early_exit_layer=None if name in ("ss", "s2t") else 2)


def train(name: str, folder: Path, other: Records) -> None:
    """Training in the precisions that there are, then compiled too, with what the trainer freezes frozen."""
    theirs = next((r["src_plus_tgt_tokens_per_cpu_s"] for r in other.get(f"spear.{name}.train", [])), None)
    for word, precision, bits, is_compiled in ways_to_train():
        run = TRAINERS[name](
            model(name),
            dataset=Rows(),
            num_train_steps=10**6,
            num_warmup_steps=1000,
            batch_size=ROWS,
            results_folder=folder / f"{name} {word}",
            mixed_precision=precision,
            compile=is_compiled,
        )
        for _ in range(3):
            run.train_step()
        cost = statistics.median(cpu_seconds(run.train_step) for _ in range(8))
        tokens = ROWS * (SPEECH if name == "ss" else SPEECH + TEXT)
        tell(f"{name} train {word}", tokens / cost, share_told(run, cost, bits), theirs)


def generate(name: str, _: Path, other: Records) -> None:
    """One row at a time, plain and speculative; nothing ends before the limit."""
    plain = [record["tokens_per_cpu_s"] for record in other.get("spear.generate", []) if not record["opts"]]
    writer = model(name).eval()
    with torch.no_grad():
        writer.tables["speech"].weight[writer.end("speech")] = 0.0
        writer.upper.norm.weight.fill_(1.0)
    source = torch.randint(0, 256, (1, 64))
    for word, options in (("plain", {}), ("speculative", {"spec_decode": True})):
        speeds = []
        for _ in range(3):
            made: list[Any] = []
            cost = cpu_seconds(lambda: made.append(_written(writer, source, options)))  # noqa: B023
            speeds.append(int(made[0].lengths[0]) / cost)
        tell(f"generate {word}", statistics.median(speeds), "one row", plain[0] if plain else None)


def _written(writer: TextToSemantic, source: torch.Tensor, options: dict[str, Any]) -> Any:
    return writer.generate(
        source, source_type="text", target_type="speech", max_length=DRAWN, sampling=Sampling(top_k=50), **options
    )


if __name__ == "__main__":
    run_part(__doc__, {**dict.fromkeys(TRAINERS, train), "gen": generate})
