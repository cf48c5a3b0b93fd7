"""Labs: the replay of an agent with one fault, questions about it, and a check that plays the repaired agent."""

from torchrl_agent.labs.answer import Answer, check, read_answer, sentences, sheet, write_sheet
from torchrl_agent.labs.lab import LABS, Lab, find_lab, record_lab

__all__ = ["LABS", "Answer", "Lab", "check", "find_lab", "read_answer", "record_lab", "sentences", "sheet"]
__all__ += ["write_sheet"]
