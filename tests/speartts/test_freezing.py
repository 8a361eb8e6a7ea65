"""What learns: part by part, and by the policy of each trainer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from spear_trainings import SEMANTIC, make, new_model

from madrigal.speartts.model import TextToSemantic

DEEP = {"source_depth": 4, "target_depth": 3, "target_early_exit_layer": 1, "ctc_loss_weight": 1.0}
DECODER = {"lower.layers.0", "upper.layers.0", "upper.layers.1", "upper.norm"}
ENCODER = {f"encoder.layers.{n}" for n in range(4)} | {"encoder.norm"}
EARLY = {"early_norm", "early_project"}
MASKS = {"masks.speech"}
SPEECH, TEXT = {"tables.speech", "starts.speech"} | MASKS, {"tables.text", "starts.text"}
CTC = {"ctc.project"}
EVERYTHING = DECODER | ENCODER | EARLY | SPEECH | TEXT | CTC


def part_of(name: str) -> str:
    first, second, *rest = name.split(".")
    if second == "layers":
        return f"{first}.layers.{rest[0]}"
    return first if first in EARLY else f"{first}.{second}"


def learning(model: TextToSemantic) -> set[str]:
    """The parts that learn; a part learns as a whole or not at all."""
    parts = {part_of(name): parameter.requires_grad for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == parts[part_of(name)], name
    return {part for part, learns in parts.items() if learns}


@pytest.mark.parametrize(
    ("freeze", "left"),
    [
        (lambda m: m.unfreeze_all(), EVERYTHING),
        (lambda m: m.freeze_encoder(), EVERYTHING - ENCODER),
        (lambda m: m.freeze_decoder(), EVERYTHING - DECODER),
        (lambda m: m.freeze_speech_emb(), EVERYTHING - SPEECH),
        (lambda m: m.freeze_text_emb(), EVERYTHING - TEXT),
        (lambda m: m.freeze_encoder_below_layer(2), EVERYTHING - {"encoder.layers.0", "encoder.layers.1"}),
        (
            lambda m: m.freeze_encoder_above_layer(2),
            EVERYTHING - {"encoder.layers.2", "encoder.layers.3", "encoder.norm"},
        ),
    ],
)
def test_each_part_can_be_frozen(freeze: Callable[[TextToSemantic], None], left: set[str]) -> None:
    model = new_model(**DEEP)
    freeze(model)
    assert learning(model) == left
    model.unfreeze_all()
    assert learning(model) == EVERYTHING


@pytest.mark.parametrize(
    ("trainer", "options", "left"),
    [
        ("speech-speech", {}, EVERYTHING - CTC),  # what reading alone teaches
        ("semantic-to-text", {}, EVERYTHING - ENCODER - SPEECH),
        ("semantic-to-text", {"freeze_encoder": False}, EVERYTHING),
        # The paper: the encoder's embedding and its lower layers learn.
        ("text-to-semantic", {}, TEXT | EARLY | {"encoder.layers.0", "encoder.layers.1"}),
        ("text-to-semantic", {"tuned_encoder_layers": 1}, TEXT | EARLY | {"encoder.layers.0"}),
        ("text-to-semantic", {"tuned_encoder_layers": None}, EVERYTHING - CTC),
        (
            "text-to-semantic",
            {"freeze_encoder_layers_below": 2},
            TEXT | EARLY | {"encoder.layers.2", "encoder.layers.3", "encoder.norm"},
        ),
    ],
)
def test_SP15_each_trainer_freezes_what_its_task_should_keep(
    trainer: str, options: dict[str, Any], left: set[str], tmp_path: Path
) -> None:
    model = new_model(**DEEP)
    model.freeze_encoder()  # what another trainer has left behind
    made = make(trainer, tmp_path, model=model, **options)
    assert learning(model) == left
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    made.train_step()
    made.train_step()
    changed = {part_of(name) for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed <= left
    # What the task does not touch has no gradient: the other modality's table, mostly.
    unused = {"speech-speech": TEXT, "semantic-to-text": SPEECH | EARLY, "text-to-semantic": {"starts.text"}}[trainer]
    assert left - unused - MASKS <= changed


class Tokenizer(torch.nn.Linear):
    codebook_size, target_sample_hz, frame_rate = SEMANTIC, 16000, 50.0


def test_SP5_a_frozen_tokenizer_stays_frozen_and_is_in_no_optimizer(tmp_path: Path) -> None:
    tokenizer = Tokenizer(3, 3).requires_grad_(False)
    trainer = make("semantic-to-text", tmp_path, model={"wav2vec": tokenizer})
    assert trainer.wav2vec is tokenizer
    trainer.train()
    assert not any(parameter.requires_grad for parameter in tokenizer.parameters())
    held = {id(p) for group in trainer.turn_states[0].optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in trainer.model.parameters() if p.requires_grad}
    assert not held & {id(p) for p in tokenizer.parameters()}
