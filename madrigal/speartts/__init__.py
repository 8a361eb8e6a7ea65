"""SPEAR-TTS: one encoder-decoder that reads speech into text and speaks text into semantic tokens."""
