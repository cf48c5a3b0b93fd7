"""``python -m torchrl_agent``: the command ``torchrl-agent``."""

import os
import sys

from torchrl_agent.cli import main

if __name__ == "__main__":
    os.environ.setdefault("RL_WARNINGS", "False")
    sys.exit(main())
