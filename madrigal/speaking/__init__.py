"""What all that speaks has in common: a text in pieces, the pieces said in batches or one by one, and joined."""
