"""The verbs of ``torchrl-agent`` that are nothing but a command: a module each, with ``add_arguments`` and ``run``."""
