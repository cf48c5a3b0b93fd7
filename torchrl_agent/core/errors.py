"""Errors that more than one place knows; importing them brings nothing else."""


class TrainingError(RuntimeError):
    """Training cannot go on; the sentence says why and what to do."""


class HiddenPackageError(ImportError):
    """Another package is found where one of this project's is meant."""
