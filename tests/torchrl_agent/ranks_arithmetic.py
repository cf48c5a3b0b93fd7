"""What two ranks find out together, against what one process finds of all samples; run by two processes."""

import torch

from torchrl_agent.core import ranks
from torchrl_agent.core.ranks import explained_variance, masked_mean
from torchrl_agent.modules.records import correlation
from torchrl_agent.transforms import RunningStatistics

SAMPLES, OTHERS = torch.tensor([1.0, 2.0, 6.0, 9.0, 4.0, 7.0]), torch.tensor([2.0, 1.0, 3.0, 9.0, 5.0, 5.0])
COUNTED = torch.tensor([True, True, True, False, False, True])
"""Of the first rank's three all count, of the second one's only the last."""


def close(found, expected):
    torch.testing.assert_close(torch.as_tensor(found).double(), torch.as_tensor(expected).double(), msg=str(found))


with ranks.started(60):
    here = slice(3 * ranks.rank(), 3 * ranks.rank() + 3)
    samples, others, counted = SAMPLES[here], OTHERS[here], COUNTED[here]
    assert ranks.size() == 2

    # 1, 2, 6, 7: mean 4, variance (9 + 4 + 4 + 9) / 4
    running = RunningStatistics(())
    running.update(samples, counted)
    for found, expected in zip((running.mean, running.var, running.count), (4.0, 6.5, 4.0), strict=True):
        close(found, expected)
    close(ranks.mean(masked_mean(samples, counted)), 4.0)
    close(ranks.mean(masked_mean(samples, counted & (samples == 7))), 7.0)
    close(ranks.mean(masked_mean(samples, torch.zeros(3, dtype=torch.bool))), 0.0)
    joint = correlation(samples, others, counted), explained_variance(samples, others, counted)
    with ranks.alone():
        whole = correlation(SAMPLES, OTHERS, COUNTED), explained_variance(SAMPLES, OTHERS, COUNTED)
    for found, expected in zip(joint, whole, strict=True):
        close(found, expected)

    total, row = ranks.means([samples.sum(), samples])
    close(total, 14.5)
    close(row, [5.0, 3.0, 6.5])
    close(ranks.largest(samples), [9.0, 4.0, 7.0])
    assert [bool(ranks.all_true(torch.tensor(value))) for value in (True, ranks.rank() == 0)] == [True, False]

    assert ranks.first(ranks.size) == 1  # by itself
    assert ranks.all_gather(ranks.rank()) == [0, 1]
    assert ranks.highest(ranks.rank() + 3) == 4
    layer = torch.nn.Linear(1, 2)
    torch.nn.init.constant_(layer.weight, ranks.rank())
    ranks.broadcast_state(layer)
    close(layer.weight, [[0.0], [0.0]])
    joined = ranks.gather_rows({"x": samples.view(1, 3)}, -1)["x"]
    close(joined, SAMPLES.view(1, 6) if ranks.rank() == 0 else samples.view(1, 3))
    close(ranks.own_rows({"x": SAMPLES.view(1, 6)}, -1)["x"], samples.view(1, 3))
