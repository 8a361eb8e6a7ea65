"""The codec: SoundStream, its discriminators and losses, its trainer, and files that hold its codes."""
