"""The verbs of ``torchrl-agent`` that are nothing but a command: a module each, with ``add_arguments`` and ``run``."""

VERBS = {
    "train": ("commands.train", "train the agent of a configuration"),
    "pretrain": ("commands.pretrain", "teach one module from rollouts of scripted and random players"),
    "resume": ("commands.resume", "continue a run from its last checkpoint"),
    "evaluate": ("commands.evaluate", "judge a run's policy"),
    "match": ("commands.match", "two agents against each other, in a world with two seats"),
    "league": ("commands.league", "ratings and the cross-play table of runs, past selves and scripted players"),
    "exploit": ("commands.exploit", "train fresh agents against a run's agent: how far can it be beaten"),
    "film": ("commands.film", "film a run's policy"),
    "explain": ("commands.explain", "open an agent's head in one step of an evaluation episode"),
    "plot": ("commands.plot", "draw learning curves of runs, one per configuration, over its seeds"),
    "compare": ("commands.compare", "a table of runs, with mean and deviation over a configuration's seeds"),
    "bench": ("commands.bench", "measure the speed and skill of a configuration"),
    "export": ("commands.export", "write a run's agent, or one module, for PyTorch or ONNX runtimes, or to share"),
    "profile": ("commands.profile", "say where the time of a training iteration goes"),
    "convert": ("commands.convert", "make a run of a Stable-Baselines3 model, or the other way round"),
    "completion": ("commands.completion", "print what a shell needs to complete this command's words"),
    "doctor": ("commands.doctor", "check versions, device and compiler, and say what to do"),
    "runs": ("commands.runs", "list runs and the agents that come with the package, with their figures"),
    "configs": ("commands.configs", "list configurations, or show one in full"),
}
"""What can be asked for: its module, with ``add_arguments`` and ``run`` (and perhaps ``complete``, for words that may
be left out), and what it does."""
