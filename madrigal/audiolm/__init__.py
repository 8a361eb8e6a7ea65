"""AudioLM: semantic, coarse and fine transformers over tokens of sound."""
