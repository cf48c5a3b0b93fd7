"""Studies of this project, run from a clone by ``python -m benchmarks NAME``; their figures go into ``results``."""
