"""Several agents that learn at once in one program, and evolve."""
