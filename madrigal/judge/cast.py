"""Who speaks in a manifest: recordings of each speaker to speak like, and others to know the speaker by."""

from __future__ import annotations

import random
from collections.abc import Iterable

from madrigal.data.manifest import Entry

PROMPTS, KNOWN = 4, 12
"""Recordings of each speaker that are taken as prompts at the most, and further ones that a voice is known by."""
PROMPT_SECONDS = (2.5, 8.0)
"""Lengths of a good prompt: not over at once, and not long to be heard."""


class Cast:
    """The speakers of recordings; those without a speaker count as one person's.

    A recording without a text is no prompt, but its speaker is somebody to be mistaken for. No sentence is prompted by
    a recording of the same text, and where there are enough recordings nobody is known by what was a prompt: a copy of
    the prompt's sound is not a voice.
    """

    def __init__(self, entries: Iterable[Entry], *, seed: int = 0) -> None:
        self._own: dict[str | None, list[Entry]] = {}
        for entry in entries:
            self._own.setdefault(entry.speaker, []).append(entry)
        low, high = PROMPT_SECONDS
        self._place: dict[str, int] = {}
        for speaker, own in self._own.items():
            random.Random(f"{seed}/{speaker}").shuffle(own)
            own.sort(key=lambda entry: (not entry.text, not low <= entry.duration <= high))
            self._place |= {entry.path: place for place, entry in enumerate(own)}

    @property
    def speakers(self) -> list[str]:
        """Those that have a name."""
        return [speaker for speaker in self._own if speaker is not None]

    def prompt(self, entry: Entry) -> Entry | None:
        """Another recording of the entry's speaker, each of them for as many entries; None where there is no other."""
        others = [one for one in self._own.get(entry.speaker, [])[:PROMPTS] if one.text and one.text != entry.text]
        return others[self._place.get(entry.path, 0) % len(others)] if others else None

    def known(self) -> list[Entry]:
        """What the speakers are known by; nothing where there is nobody to be mistaken for."""
        if len(self.speakers) < 2:
            return []
        rest = {speaker: self._own[speaker][PROMPTS:] or self._own[speaker] for speaker in self.speakers}
        return [entry for own in rest.values() for entry in own[:KNOWN]]
