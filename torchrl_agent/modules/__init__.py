"""Modules of the agent (perception, world model, social model, manager, your own) and their networks."""
