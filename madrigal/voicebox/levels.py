"""How loud speech is, as a model hears it; what is far softer or louder than it has learned is brought near.

Log-mels of a wave that is g times as loud are higher by log g in every band. The voices of a model are a part of what
it has learned; they tell how loud that was.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from madrigal.tokenizers.mel_features import Features, MelFeatures

ACTIVE = 4.0
"""Frames within so much of the loudest, in units of a logarithm, are speech; the others are pauses."""
TOLERANCE = math.log(2.0)
"""Up to 6 dB are left alone: people are not always as loud."""


def level_of(features: Tensor, heard_by: Features) -> float:
    """The mean of the log-mels [frames, dim] of speech, without its pauses."""
    raw = heard_by.denormalise(features.to(heard_by.mean.device))
    loudness = raw.mean(1)
    return float(raw[loudness > loudness.max() - ACTIVE].mean())


def gain_for(features: Tensor, heard_by: Features, levels: Iterable[float]) -> float:
    """What a wave of these features [frames, dim] has to be multiplied by to be about as loud as `levels` are.

    1 where it is about that already, or where nobody knows.
    """
    known = list(levels)
    if not known or not len(features) or not isinstance(heard_by, MelFeatures):
        return 1.0
    far = float(torch.tensor(known).median()) - level_of(features, heard_by)
    return math.exp(far) if abs(far) > TOLERANCE else 1.0
