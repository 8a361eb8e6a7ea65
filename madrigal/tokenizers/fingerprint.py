"""A short name for what a tokenizer has learned, so that tokens never meet a model that knows others."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def fingerprint_of(options: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """The first 16 hex digits of the SHA-256 of options and weights."""
    digest = hashlib.sha256(json.dumps(dict(options), sort_keys=True, default=str).encode())
    for name, weight in sorted(weights.items()):
        digest.update(f"\n{name} {weight.dtype} {list(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
