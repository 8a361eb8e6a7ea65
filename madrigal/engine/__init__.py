"""The only training loop of the house, and what it owns: turns, schedules, averages, checkpoints, runs."""
