"""Ways to compute attention: each refuses what it cannot do exactly, with reasons, and runs the rest."""
