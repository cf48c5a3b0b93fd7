"""What a world is made of: the TorchRL environment, the game behind it, its curriculum, and what both promise."""
