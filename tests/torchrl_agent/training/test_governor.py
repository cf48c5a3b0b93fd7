"""The governor: signs judged by hand, what a return puts back and in which place, limits, and resuming."""

from __future__ import annotations

import logging
import math

import pytest
import torch

from torchrl_agent import Experiment, cli, learn
from torchrl_agent.loop import _can_learn_from, iterate
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.training.governor import CollapseError, Governor, GovernorConfig, copies

WATCHED = ["governor.enabled=true", "governor.warmup=8", "governor.snapshot_every=2", "governor.patience=2"]
WELL = {
    "updates": 4.0,
    "loss_critic": 1.0,
    "explained_variance": 0.9,
    "entropy": 1.0,
    "grad_norm": 2.0,
    "grad_norm/actor": 2.0,
    "max_ratio": 1.5,
    "min_ratio": 0.5,
    "kl": 0.01,
}
"""Diagnostics of an iteration; the norm of the whole gradient and the KL are no vital signs."""


def small(*overrides, kind="Naming", **world):
    """64 frames per iteration, 4 updates."""
    quick = ["device=cpu", "total_frames=100_000", "tuned.ppo={rollout_steps: 4, minibatch_size: 32, num_epochs: 2}"]
    others = [
        "tuned.a2c.rollout_steps=4",
        "tuned.impala.rollout_steps=4",
        "tuned.dqn={rollout_steps: 4, learning_starts: 64}",
        "tuned.sac={rollout_steps: 4, learning_starts: 64, batch_size: 32}",
    ]
    sizes = ["tuned.dqn.batch_size=32", "model.hidden_sizes=[16]", "tuned.ppo.learning_rate.initial=0.003"]
    files = ["run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]
    experiment = Experiment.load("smoke", *quick, *others, *sizes, *files, *overrides)
    experiment.world, experiment.evaluation.world = {"_target_": f"one_step_worlds.{kind}", "num_envs": 16, **world}, {}
    return experiment


def make(*overrides, **world):
    return small(*WATCHED, *overrides, **world).make_learner()


@pytest.fixture(scope="module")
def algorithm():
    return make().algorithm


@pytest.fixture
def governor(algorithm):
    """Ten iterations old, in which nothing changed."""
    watch = Governor(GovernorConfig(warmup=4, memory=50, patience=3), algorithm, window=100)
    for _ in range(10):
        judge_next(watch)
    return watch


def judge_next(watch, **changes):
    """The signs of one iteration (``gradient`` is the actor's), and the longest row of bad ones."""
    values = {**WELL, **changes}
    values["grad_norm/actor"] = values.pop("gradient", WELL["grad_norm/actor"])
    watch._average.fill_(values.pop("average", 100.0))
    found = watch.judge({name: torch.tensor(value) for name, value in values.items()})
    return {name.removeprefix("vital_signs/"): value.item() for name, value in found.items()}


# --- judging, by hand


def test_the_history_is_a_plain_mean_at_first_and_a_moving_one_later(algorithm):
    watch = Governor(GovernorConfig(warmup=3, memory=2, threshold=1e6), algorithm, window=100)
    for entropy in (1.0, 2.0, 4.0):
        judge_next(watch, entropy=entropy)
    place = watch.signs.names.index("entropy")
    history = {name: value[place].item() for name, value in watch.signs.history.items()}
    sigma = math.sqrt(math.pi / 2)
    # mean 1, then (1 + 2) / 2, then half way to 4; |value - mean| is 0, 0.5, 1.25
    assert history["mean"] == 2.75
    assert history["deviation"] == pytest.approx((((0 + 0.5) / 2) + 1.25) / 2 * sigma)
    assert history["count"] == 3


def test_what_is_usual_is_not_bad(governor):
    found = judge_next(governor)
    signs = ("return", "loss_critic", "explained_variance", "entropy", "grad_norm/actor", "max_ratio", "min_ratio")
    assert found == {**dict.fromkeys(signs, 0.0), "bad_in_row": 0.0}


@pytest.mark.parametrize(
    ("change", "bad"),
    [
        ({"loss_critic": 5.1}, True),  # five times its history, where that never moved
        ({"loss_critic": 4.9}, False),
        ({"loss_critic": 0.01}, False),
        ({"explained_variance": 0.48}, True),  # five times as much is left unexplained as before
        ({"explained_variance": 0.52}, False),
        ({"explained_variance": 1.0}, False),
        ({"entropy": 0.69}, True),
        ({"entropy": 0.71}, False),
        ({"entropy": 1.31}, True),  # everything forgotten
        ({"gradient": 10.1}, True),
        ({"gradient": 9.9}, False),
        ({"max_ratio": 7.6}, True),
        ({"min_ratio": 0.09}, True),
        ({"min_ratio": 0.11}, False),
        ({"average": 49.0}, True),
        ({"average": 51.0}, False),
        ({"average": math.nan}, False),  # no episode has ended
        ({"entropy": math.nan}, True),
        ({"gradient": math.inf}, True),
        ({"gradient": 1e9, "kl": 1e9, "updates": 0.0}, False),  # no update was made: the others are means of nothing
        ({"entropy": 0.0, "average": 120.0}, False),  # it has found something better
    ],
)
def test_a_sign_is_bad_far_from_its_history_toward_the_worse(governor, change, bad):
    name = {"gradient": "grad_norm/actor", "average": "return"}.get(next(iter(change)), next(iter(change)))
    found = judge_next(governor, **change)
    assert found["bad_in_row"] == bad
    if "average" not in change or len(change) == 1:
        assert (found[name] > 6) == bad


def test_a_sign_that_always_moves_may_move_further(algorithm):
    watch = Governor(GovernorConfig(warmup=4), algorithm, window=100)
    for iteration in range(40):
        assert judge_next(watch, entropy=1.0 + (-1) ** iteration * 0.2)["bad_in_row"] == 0
    assert judge_next(watch, entropy=0.2)["bad_in_row"] == 0  # 0.8 from its mean, where 0.2 is usual
    assert judge_next(watch, entropy=-0.7)["bad_in_row"] == 1


def test_what_is_bad_does_not_become_usual(governor):
    before = copies(governor.signs.history)
    judge_next(governor, loss_critic=1e30, entropy=math.nan)
    after = governor.signs.history
    changed = [
        name
        for name, one, other in zip(governor.signs.names, before["count"], after["count"], strict=True)
        if one != other
    ]
    assert set(changed) == set(governor.signs.names) - {"loss_critic", "entropy"}
    assert torch.equal(before["mean"], after["mean"])
    judge_next(governor, loss_critic=1e30, average=200.0)  # excused: it moves the history as far as the threshold
    place = governor.signs.names.index("loss_critic")
    assert (after["mean"] - before["mean"])[place].item() == pytest.approx(math.log(5) / 11, rel=1e-4)


def test_only_a_row_of_bad_iterations_is_a_row(governor):
    rows = [judge_next(governor, entropy=entropy)["bad_in_row"] for entropy in (0.0, 0.0, 1.0, 0.0)]
    assert rows == [1, 2, 0, 1]


# --- going back


def run(learner, iterations):
    """So many iterations' metrics."""
    training = iterate(learner)
    return [next(training).metrics for _ in range(iterations)]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_healthy_run_learns_the_same_with_a_governor():
    def numbers(*changes):
        learner = small(*changes).make_learner()
        kept = [
            {name: repr(value) for name, value in metrics.items() if name.split("/")[0] in ("rollout", "train")}
            for metrics in run(learner, 30)
        ]
        return kept, copies(learner.algorithm.tensors())

    plain, without = numbers()
    watched, with_one = numbers(*WATCHED)
    assert same(without, with_one)
    seen = [{name for name in row if name.startswith("train/vital_signs/")} for row in watched]
    assert all(seen)
    assert [{name: row[name] for name in row.keys() - signs} for row, signs in zip(watched, seen, strict=True)] == plain


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala", "dqn", "sac"])
def test_a_return_puts_everything_back_in_its_place(algorithm, caplog):
    learner = make(f"algorithm={algorithm}")
    live = learner.algorithm.tensors
    run(learner, 8)  # the warm-up
    taken = {}
    for _ in range(5):
        metrics = run(learner, 1)[0]
        taken[learner.frames] = copies(live())
    healthy = int(metrics["governor/healthy_frames"])
    assert healthy in taken, "a snapshot was followed by another"
    places = {name: value.data_ptr() for name, value in live().items()}
    with torch.no_grad():
        for value in learner.agent.parameters():
            value.normal_(0.0, 10.0)
    reported = []
    with caplog.at_level(logging.WARNING):
        while not reported or reported[-1]["governor/returns"] == 0:
            reported += run(learner, 1)
            assert len(reported) < 5
    assert same(copies(live()), taken[healthy])
    assert {name: value.data_ptr() for name, value in live().items()} == places
    assert reported[-1]["governor/learning_rate_factor"] == 0.5
    (record,) = caplog.records
    assert f"back to the state after {healthy} frames, with 0.5 of the learning rate (return 1 of 5)" in record.message
    assert "usually" in record.message
    following = run(learner, 1)[0]
    assert following["train/learning_rate"] == pytest.approx(0.5 * metrics["train/learning_rate"])


def test_before_the_first_snapshot_it_begins_again():
    learner = make("algorithm.learning_rate.initial=1e30", "algorithm.num_epochs=4")
    before = copies(learner.algorithm.tensors())
    (metrics,) = run(learner, 1)
    assert metrics["train/skipped_in_row"] >= 3
    assert metrics["governor/returns"] == 1
    after = learner.algorithm.tensors()
    assert len(after) > len(before)  # Adam has moments now
    assert all(torch.equal(value, before[name]) if name in before else not value.any() for name, value in after.items())


@pytest.mark.parametrize("policy", ["mlp", "gru"])
def test_a_policy_that_plays_infinities_is_undone_before_it_learns(policy, caplog):
    learner = make(f"policy={policy}", "governor.max_returns=1")
    before = run(learner, 2)[-1]
    healthy = copies(learner.governor._snapshots[0])
    frames = learner.frames

    def spoil():
        with torch.no_grad():
            for parameter in learner.agent.parameters():
                parameter.fill_(3e38)  # finite, and what comes of it is not

    spoil()
    (metrics,) = run(learner, 1)
    assert metrics["governor/returns"] == before["governor/returns"] + 1 == 1
    assert [each for each in caplog.records if each.name.startswith("torchrl_agent") and "not finite" in each.message]
    assert learner.frames == frames + 64, "what was played then was not learned from"
    assert all(value.isfinite().all() for value in learner.algorithm.tensors().values())
    spoil()
    with pytest.raises(CollapseError, match="not finite"):
        run(learner, 1)
    assert same({name: learner.algorithm.tensors()[name] for name in healthy}, healthy)


def test_what_a_broken_policy_remembers_does_not_reach_the_next_rollout():
    """In episodes that go on, no reset empties the memory."""
    learner = Experiment.load("smoke", "device=cpu", "policy=gru", "world.num_envs=4", *WATCHED).make_learner()
    learner.governor.begin(0)
    with torch.no_grad():
        for parameter in learner.agent.parameters():
            parameter.fill_(3e38)
    (memory,) = [learner.collector.root[key] for key in learner.agent.memory]
    rollout = learner.collector.collect()
    memory.fill_(math.nan)
    assert not _can_learn_from(learner, rollout) and learner.governor.returns == 1
    assert memory.isfinite().all()


def test_a_world_that_shows_infinities_is_not_the_policys_fault(monkeypatch):
    learner = make()
    monkeypatch.setattr(learner.env, "worth", lambda action: torch.full((*action.shape, 1), math.inf))
    with pytest.raises(NonFiniteError, match="look at the world"):
        run(learner, 1)
    assert learner.governor.returns == 0


def test_after_the_last_return_one_sentence_tells_what_to_do():
    learner = make("algorithm.learning_rate.initial=1e30", "algorithm.num_epochs=4", "governor.max_returns=2")
    before = copies(learner.algorithm.tensors())
    with pytest.raises(CollapseError) as caught:
        run(learner, 3)
    reported = str(caught.value)
    assert "\n" not in reported
    assert reported.startswith("training collapsed after 192 frames (the loss or its gradient was not finite")
    for words in (
        "2 returns",
        "0.25 of the learning rate",
        "a lower algorithm.learning_rate.initial",
        "governor.max_returns",
    ):
        assert words in reported
    after = learner.algorithm.tensors()
    assert all(torch.equal(value, after[name]) for name, value in before.items()), "what is left is healthy"


def test_the_command_ends_with_that_sentence(tmp_path, capsys):
    hopeless = ["algorithm.learning_rate.initial=1e30", "governor.max_returns=0", "governor.enabled=true"]
    assert cli.main(["train", "smoke", "device=cpu", *hopeless, f"run.folder={tmp_path}"]) == 2
    assert "training collapsed after 512 frames" in capsys.readouterr().err.strip().splitlines()[-1]


def turn_rewards_round(learner):
    learner.env.turns_at = 0


def want_no_entropy(learner):
    learner.algorithm.loss.objective.entropy_coeff.fill_(-5.0)
    learner.governor.learning_rate_factor = 5.0


def learn_far_too_fast(learner):
    learner.governor.learning_rate_factor = 200.0


@pytest.mark.parametrize(
    ("provoke", "visible", "sign"),
    [(turn_rewards_round, True, "critic"), (want_no_entropy, False, "entropy"), (learn_far_too_fast, True, "critic")],
)
def test_a_collapse_is_noticed_and_named(provoke, visible, sign, caplog):
    learner = make(visible=visible)
    before = run(learner, 20)[-1]
    provoke(learner)
    with caplog.at_level(logging.WARNING):
        reported = run(learner, 8)
    assert reported[-1]["governor/returns"] == 1
    assert reported[-1]["governor/learning_rate_factor"] < 200
    assert f"{sign} is" in caplog.records[0].message
    assert before["governor/healthy_frames"] <= reported[-1]["governor/healthy_frames"]


def test_a_curriculum_that_moves_on_is_no_collapse():
    learner = make()
    metrics = run(learner, 20)[-1]
    watch = learner.governor
    watch.act({**metrics, "curriculum/stage": 1.0}, learner.frames)
    assert (watch.signs.history["count"] > 0).all(), "the first stage is no change"
    watch.act({**metrics, "curriculum/stage": 1.0}, learner.frames)
    assert (watch.signs.history["count"] > 0).all()
    watch.act({**metrics, "curriculum/stage": 2.0}, learner.frames)
    assert not watch.signs.history["count"].any()
    assert not any(held["history.count"].any() for held in watch._snapshots)
    learner.env.turns_at = 0
    assert run(learner, 6)[-1]["governor/returns"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_run_that_collapses_without_a_governor_recovers_with_one(seed):
    """The learning rate grows past what the task bears."""

    def average_of_the_last_third(*overrides):
        growing = ["algorithm.learning_rate={initial: 0.1, warmup: 0.99}", f"total_frames={64 * 180}"]
        rows = [row.metrics for row in learn(small(*growing, f"seed={seed}", *overrides, kind="Copying"))]
        returns = [row["rollout/ep_rew_mean"] for row in rows]
        assert sum(returns[60:75]) / 15 > -0.11, "it has learned the task by then"
        return sum(returns[120:]) / 60, rows[-1].get("governor/returns")

    without, _ = average_of_the_last_third()
    with_one, returns = average_of_the_last_third("governor.enabled=true")
    assert returns >= 1
    assert without < -0.12
    assert with_one > without / 2, "it has lost less than half as much"


# --- saving


def test_a_governor_goes_on_with_every_number_that_it_knows(algorithm, governor):
    for number, (name, value) in enumerate(list(vars(governor).items()), 2):
        if isinstance(value, bool | int | float) and name != "window":
            setattr(governor, name, type(value)(number))
    governor._average.fill_(0.5)
    other = Governor(governor.config, algorithm, governor.window)
    other.load_state_dict(governor.state_dict())
    one, another = (
        {name: value for name, value in vars(each).items() if isinstance(value, bool | int | float)}
        for each in (governor, other)
    )
    assert one == another
    assert other._average.item() == 0.5


def test_a_run_without_a_governor_can_be_resumed_with_one():
    (*_, last) = learn(small("total_frames=64"))
    state = last.learner.state_dict()
    assert state["governor"] is None
    first = next(learn(small(*WATCHED), state))
    assert first.metrics["governor/healthy_frames"] == 64


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"warmup": 0}, "governor.warmup"),
        ({"threshold": math.inf}, "governor.threshold"),
        ({"learning_rate_factor": math.nan}, "governor.learning_rate_factor"),
    ],
)
def test_settings_that_cannot_work_are_one_sentence(change, named):
    with pytest.raises(ValueError, match=named) as caught:
        make(*[f"governor.{name}={value}" for name, value in change.items()])
    assert "\n" not in str(caught.value)


def test_versions_that_have_not_played_go_back_with_the_agent():
    learner = make("algorithm.lag=2")
    player, iterations = learner.algorithm.player, iterate(learner)
    for _ in range(3):
        next(iterations)
    with torch.no_grad():
        for weights in learner.agent.parameters():
            weights.fill_(math.nan)
    player.learned(learner.agent)  # version 4, which plays rollout 6
    learner.governor.rollback("all of it", 256, 0.0)
    player.prepare(6)
    assert player.version == 4
    for mine, theirs in zip(learner.agent.parameters(), player.agent.parameters(), strict=True):
        assert torch.equal(mine, theirs) and not mine.isnan().any()
