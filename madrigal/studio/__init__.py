"""The studio: runs to watch, voices to hear, and the HTTP interface that programs speak to."""
