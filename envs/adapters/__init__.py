"""Adapters of the project's worlds to other libraries: Gymnasium, PettingZoo, Stable-Baselines3."""
