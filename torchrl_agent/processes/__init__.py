"""What processes share of a training and what they refuse, and those that are no equals: actors for a learner, and
agents of the same worlds.
"""
