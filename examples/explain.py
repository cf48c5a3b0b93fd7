"""Record of one step of a shipped agent (beliefs, predictions, action), with and without one of its modules."""

import argparse

from torchrl_agent.explain import as_text, explain


def main(step: int = 40, run: str = "shipped:tonight") -> list[int]:
    """Print the record of one step with and without the social model; returns the two actions."""
    actions = []
    for ablated in ((), ("social_model",)):
        thought = explain(run, step=step, ablated=ablated, device="cpu")
        print(as_text(thought, []))
        actions.append(thought.action)
    return actions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=40)
    main(parser.parse_args().step)
