"""Voicebox: flow matching that speaks, fills in and edits; alignment and durations; features and a vocoder."""
