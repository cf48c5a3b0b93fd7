"""Our worlds for others: Gymnasium, PettingZoo, Stable-Baselines3."""
