"""How much semantic tokens tell of sounds, and how little of voices: shared information, and sentences found again."""

from collections.abc import Mapping, Sequence

import numpy as np

Ids = np.ndarray


def explained(tokens: Ids, labels: Sequence[str] | np.ndarray) -> float:
    """The share of the labels' entropy that the tokens explain, in 0 … 1: I(token; label) / H(label).

    Few frames and many tokens make it too large; compare only what has like numbers of both.
    """
    _, rows = np.unique(tokens, return_inverse=True)
    _, columns = np.unique(np.asarray(labels), return_inverse=True)
    joint = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(joint, (rows, columns), 1 / len(rows))
    by_token, by_label = joint.sum(1, keepdims=True), joint.sum(0)
    there = joint > 0
    information = float((joint[there] * np.log(joint[there] / (by_token * by_label)[there])).sum())
    entropy = float(-(by_label * np.log(by_label)).sum())
    return information / entropy if entropy > 0 else 0.0


def perplexity(tokens: Ids) -> float:
    """How many tokens there seem to be, by their frequencies."""
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def without_repeats(tokens: Ids) -> Ids:
    """A row [time] with each run of one token made one."""
    return tokens[np.r_[True, tokens[1:] != tokens[:-1]]] if len(tokens) else tokens


def edit_distance(left: Ids, right: Ids) -> float:
    """Insertions, deletions and replacements between two rows, over the length of the longer one."""
    places = np.arange(len(right) + 1)
    costs = places.copy()
    for number, token in enumerate(left, 1):
        best = np.minimum(costs[:-1] + (right != token), costs[1:] + 1)
        # An insertion adds one to the place before it: the running minimum once the slope is taken out.
        costs = np.minimum.accumulate(np.r_[number, best] - places) + places
    return float(costs[-1]) / max(len(left), len(right), 1)


def retrieval(spoken: Mapping[tuple[str, int], Ids], others: int = 10) -> dict[str, float]:
    """How often the same sentence in another voice is nearer than `others` other sentences.

    `spoken` maps (voice, sentence) to tokens [time]. Also gives the mean distance to the same and to other sentences.
    """
    voices, sentences = sorted({voice for voice, _ in spoken}), sorted({number for _, number in spoken})
    hits, same, different = [], [], []
    for place, sentence in enumerate(sentences):
        rivals = (sentences[place + 1 :] + sentences[:place])[:others]
        for index, first in enumerate(voices):
            for second in voices[index + 1 :]:
                asked = spoken[first, sentence]
                right = edit_distance(asked, spoken[second, sentence])
                wrong = [edit_distance(asked, spoken[second, rival]) for rival in rivals]
                hits.append(right < min(wrong))
                same.append(right)
                different += wrong
    return {
        "retrieval": float(np.mean(hits)),
        "distance_same": float(np.mean(same)),
        "distance_other": float(np.mean(different)),
        "cases": float(len(hits)),
    }
