"""Processes that share a training in other ways than as equals: actors for a learner, and agents of the same worlds."""
