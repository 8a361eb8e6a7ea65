"""A codec of a size for tests, at the speech codec's rate: a frame in 320 samples."""

from typing import Any

from madrigal.soundstream.codec import SoundStream


def small_codec(codebook_size: int, levels: int, **options: Any) -> SoundStream:
    """Nobody has trained it; it has no discriminators and no attention."""
    return SoundStream(
        discriminators=False,
        strides=(8, 40),
        channels=2,
        channel_mults=(2, 4),
        codebook_dim=8,
        codebook_size=codebook_size,
        rq_num_quantizers=levels,
        use_local_attn=False,
        **options,
    )
