"""What several systems share: convolutions and attention that stream, spectra, quantizers."""
