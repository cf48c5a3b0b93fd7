"""Errors that several modules share; this module imports nothing else."""


class TrainingError(RuntimeError):
    """Training cannot continue; the sentence names the reason and the fix."""


class HiddenPackageError(ImportError):
    """Another package shadows one of this project's."""
