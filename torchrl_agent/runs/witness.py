"""What the other ranks do where the first one keeps the books of a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torchrl_agent import ranks
from torchrl_agent.learner import Learner
from torchrl_agent.population.learner import PopulationLearner


class Witness:
    """Hands this rank's worlds over to the first rank's :class:`~torchrl_agent.runs.folder.Books` whenever those save;
    writes nothing.

    Args:
        learner: that trains.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self._saved_frames = learner.frames

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def at_work(self) -> AbstractContextManager:
        """In here the learner is changing."""
        return nullcontext()

    def enter(self, metrics: dict[str, float]) -> None:
        """Take part in the checkpoint of an iteration, if the first rank makes one."""
        if ranks.highest(0):
            self._save()

    def stop(self) -> None:
        """Take part in the last checkpoint."""
        if self._saved_frames != self.learner.frames:
            self._save()

    def finish(self) -> None:
        """The same, and help to show the agent that is judged."""
        self.stop()
        self.learner.present()

    def where_to_go_on(self) -> str:
        """What is left of a run that cannot go on."""
        return "go on from the last checkpoint, if there is one"

    def _save(self) -> None:
        if isinstance(self.learner, PopulationLearner):
            for member in range(self.learner.members):
                self.learner.member_state(member)
                self.learner.statistics(member)
        self.learner.state_dict()
        self.learner.statistics()
        self._saved_frames = self.learner.frames
