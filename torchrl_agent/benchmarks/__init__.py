"""What is measured: speed, skill, learning beside Stable-Baselines3, and what each module is worth."""
