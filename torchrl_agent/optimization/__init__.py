"""Updates of parameters: the optimizer with its clipping, schedules, compilation, precision and sharding."""
