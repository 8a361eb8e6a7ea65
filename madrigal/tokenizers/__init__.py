"""From sound to ids: semantic tokenizers that can be trained here or loaded, and codecs of one interface."""

from madrigal.tokenizers.loading import load_codec, load_tokenizer

__all__ = ["load_codec", "load_tokenizer"]
