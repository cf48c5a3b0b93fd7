"""How the agent learns; knows worlds only through TorchRL specs and tensordict keys."""
