"""From log-mels to sound: a small network that ends in an inverse Fourier transform, and Griffin-Lim as the floor."""
