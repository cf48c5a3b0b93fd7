"""A policy as a file that runs with PyTorch alone, without this project and without a configuration."""

import argparse
import json
from pathlib import Path

import torch

from torchrl_agent.export import export_run


def main(output: str = "policy.pt2", run: str = "shipped:arena") -> torch.Tensor:
    """Export the policy, load it back by PyTorch, and act in three worlds at once; returns the actions."""
    (path,) = export_run(run, "policy", output=output)
    description = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
    policy = torch.export.load(path).module()
    rows = {
        each["name"]: torch.ones([3, *each["shape"][1:]], dtype=getattr(torch, each["dtype"]))
        for each in description["inputs"]
    }
    actions = policy(rows)["action"]
    print(f"{path} reads {', '.join(rows)} and gives actions {actions.tolist()}")
    return actions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="policy.pt2")
    main(parser.parse_args().output)
