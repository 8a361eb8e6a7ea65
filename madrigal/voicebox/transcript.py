"""Words of a transcript: where some stand, what it says with others in their place, and what changes in its symbols."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from madrigal.errors import UserError
from madrigal.tokenizers.text import shortened

WORD = re.compile(r"[^\W_]+(?:['’.\-][^\W_]+)*")
PAUSES = (",", ";", ":")
MARKS = (*PAUSES, ".", "!", "?")


def with_words(transcript: str, old: str, new: str) -> str:
    """The transcript with `new` in the place of the words `old`, however they are written there (case, marks)."""
    wanted = [_plain(word[0]) for word in WORD.finditer(old)]
    if not wanted:
        raise UserError(f"There are no words to replace in {old!r}: write those that are said.")
    there = list(WORD.finditer(transcript))
    plain = [_plain(word[0]) for word in there]
    places = [p for p in range(len(there) - len(wanted) + 1) if plain[p : p + len(wanted)] == wanted]
    if len(places) != 1:
        how = "are not said" if not places else f"are said {len(places)} times"
        help = "check the words" if not places else "name some words beside them too"
        raise UserError(f"The words {old!r} {how} in {shortened(transcript, 200)!r}: {help}.")
    first, last = there[places[0]], there[places[0] + len(wanted) - 1]
    before, said, rest = transcript[: first.start()], new.strip(), transcript[last.end() :]
    # A mark that stands behind the old words stays, unless another comes to stand before it. Of a comma and the end of
    # a sentence the end stays.
    mark = (said or before.rstrip())[-1:]
    if rest[:1] in MARKS and (mark in MARKS or not (said or before.strip())):
        if not said and mark in PAUSES and rest[0] not in PAUSES:
            before = before.rstrip()[:-1]
        else:
            rest = rest[1:]
    return " ".join(f"{before}{said}{rest}".split())


def _plain(word: str) -> str:
    return word.casefold().replace("’", "'")


@dataclass(frozen=True)
class Change:
    """Symbols start … stop-1 of one text stand where symbols start … new_stop-1 of another do; the rest is common."""

    start: int
    stop: int
    new_stop: int


def change_of(before: Sequence[int], after: Sequence[int], silence: int) -> Change:
    """What differs between the symbols of two texts, in whole words: a sound is said as its neighbours are."""
    if list(before) == list(after):
        raise UserError("The new words sound as the old ones do: there is nothing to change.")
    shorter = min(len(before), len(after))
    start = next((p for p in range(shorter) if before[p] != after[p]), shorter)
    while start > 0 and before[start - 1] != silence:
        start -= 1
    same_end = next((p for p in range(shorter - start) if before[-1 - p] != after[-1 - p]), shorter - start)
    while same_end > 0 and not _is_between_words(before, after, same_end, silence):
        same_end -= 1
    # Words that go without any others in their place leave a pause, which has to be made as well.
    if start == len(after) - same_end or start == len(before) - same_end:
        start = max(0, start - 1)
    return Change(start, len(before) - same_end, len(after) - same_end)


def _is_between_words(before: Sequence[int], after: Sequence[int], same_end: int, silence: int) -> bool:
    """Whether the last `same_end` symbols begin with a pause, or with a word in both texts."""
    first = len(before) - same_end
    if before[first] == silence:
        return True
    return all(len(text) > same_end and text[len(text) - same_end - 1] == silence for text in (before, after))
