"""What the agent is made of."""
