"""Parts of a world: the TorchRL environment, the game behind it, its curriculum, and the contract between them."""
