"""The verbs of ``torchrl-agent`` that are nothing but a command: a module each, with ``add_arguments`` and ``run``."""

VERBS = {
    "train": ("train", "train the agent of a configuration"),
    "pretrain": ("pretrain", "teach one module from rollouts of scripted and random players"),
    "resume": ("train", "continue a run from its last checkpoint"),
    "evaluate": ("evaluate", "judge a run's policy"),
    "match": ("match", "two agents against each other, in a world with two seats"),
    "league": ("match", "ratings and the cross-play table of runs, past selves and scripted players"),
    "exploit": ("match", "train fresh agents against a run's agent: how far can it be beaten"),
    "film": ("film", "film a run's policy"),
    "explain": ("explain", "open an agent's head in one step of an evaluation episode"),
    "plot": ("compare", "draw learning curves of runs, one per configuration, over its seeds"),
    "compare": ("compare", "a table of runs, with mean and deviation over a configuration's seeds"),
    "bench": ("bench", "measure the speed and skill of a configuration"),
    "export": ("export", "write a run's agent, or one module, for PyTorch or ONNX runtimes, or to share"),
    "profile": ("bench", "say where the time of a training iteration goes"),
    "convert": ("export", "make a run of a Stable-Baselines3 model, or the other way round"),
    "completion": ("configs", "print what a shell needs to complete this command's words"),
    "doctor": ("doctor", "check versions, device and compiler, and say what to do"),
    "runs": ("compare", "list runs and the agents that come with the package, with their figures"),
    "configs": ("configs", "list configurations, or show one in full"),
}
"""Verbs: the module of each, which has ``add_VERB`` and ``run_VERB`` (and perhaps ``complete_VERB``, for words that may
be left out), and what it does."""
