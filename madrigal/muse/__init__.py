"""Muse: pictures from text. A VQGAN makes tokens of pictures and pictures of tokens, MaskGIT draws the tokens."""
