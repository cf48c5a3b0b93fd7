"""A league: everybody acts by its own weights, learns from its own seats, and what was played is counted rightly."""

import copy
import json

import pytest
import torch
from torch._dynamo.utils import counters

from torchrl_agent import Experiment, cli, keys, learn, train
from torchrl_agent.evaluation.exploitability import exploiters_of
from torchrl_agent.evaluation.matches import Competitor, rate_league, seat_competitors, snapshots_of
from torchrl_agent.loop import iterate
from torchrl_agent.models.planned_policy import acting_policy
from torchrl_agent.population.agent import Member
from torchrl_agent.population.league import FADES
from torchrl_agent.population.league_learner import EXPLOITED
from torchrl_agent.population.seats import pairings
from torchrl_agent.runs.members import member_experiment
from torchrl_agent.training.collector import agent_rows

EAGER = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
SMALL = [
    "device=cpu",
    "world.num_envs=16",
    "+world.rules={max_steps: 32}",
    "+evaluation.world.rules={max_steps: 32}",
    "model.hidden_sizes=[16]",
    "algorithm={rollout_steps: 16, minibatch_size: 64, num_epochs: 1}",
    "league={refresh: 2, snapshot_every: 512}",
    "total_frames=2048",
    "run={tensorboard: false, film: false, final_evaluation: false}",
    *EAGER,
]


PBT = ["population.evolve=pbt", "population.every=512"]


def league(*overrides):
    return Experiment.load("duel_league", *SMALL, *overrides)


def learner_of(*overrides):
    return league(*overrides).make_learner()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs")
    for _ in train(league(f"run.folder={folder}", "run.name=a")):
        pass
    return folder / "a"


def test_everybody_acts_by_its_own_weights_in_its_own_seats():
    learner = learner_of("population.members=2", "league.slots=2")
    with torch.no_grad():  # so that all differ
        for stack in (learner.algorithm.stack, learner.league.slots):
            stack.flat.add_(torch.randn(stack.flat.shape))
    root = learner.collector.root
    policy = learner.algorithm.behavior.policy
    logits = policy(root.copy())["agents", "logits"]
    member = copy.deepcopy(Member(learner.algorithm.template))
    for stack, first, count in ((learner.algorithm.stack, 0, 2), (learner.league.slots, 2, 4)):
        for index in range(count):
            stack.show(index, member)
            expected = member.agent.policy(root.copy())["agents", "logits"]
            here = learner.seats.player == first + index
            assert torch.allclose(logits[here], expected[here], atol=1e-5)
    actions = policy(root.copy())["agents", keys.ACTION]
    for index, name in enumerate(learner.league.config.scripted):
        here = learner.seats.scripted(index)
        assert here.any()
        assert torch.equal(actions[here], learner.env.players()[name](root.copy())["agents", keys.ACTION][here])


def test_members_learn_from_their_own_seats_alone():
    learner = learner_of()
    rollout = learner.collector.collect()
    rows, seats = agent_rows(rollout, "agents", learner.learning), learner.seats
    assert rows.shape == (16, seats.members.numel())
    seen = rollout["agents", "observation"].flatten(1, 2)
    for member, mine in enumerate(seats.members):
        share = rows["observation"].unflatten(1, (4, -1))[:, member]
        assert torch.equal(share, seen[:, mine])
    before = {name: value.clone() for name, value in learner.league.slots.state_dict().items()}
    flat = learner.algorithm.stack.flat.detach().clone()
    learner.improve(rollout, 1e-3)
    assert (learner.algorithm.stack.flat != flat).any(1).all()
    assert all(torch.equal(value, before[name]) for name, value in learner.league.slots.state_dict().items()), (
        "they are frozen"
    )


def test_results_are_entered_for_who_played_and_from_the_members_view():
    learner = learner_of("population.members=2", "league.slots=1", "league.scripted={turret: 0.25, scripted: 0}")
    seats, standings = learner.seats, learner.league.standings
    assert seats.player[:4].tolist() == [[0, 2], [2, 0], [0, 2], [2, 0]]  # against the slot, from either seat
    learner.league.slots.put(torch.tensor([0]), learner.league.pool.snapshots, torch.tensor([1]))
    learner.league.held[0] = (
        1  # the slot holds the second snapshot, which lies behind two members and two scripted players
    )
    worlds = torch.tensor([0, 1, 8, 9])
    assert seats.player[8:10].tolist() == [[0, 4], [4, 0]]  # against the turret
    finished = {
        "win": torch.tensor([1.0, 1.0, 0.0, 0.0]),
        "draw": torch.tensor([0.0, 0.0, 1.0, 0.0]),
        "return": torch.zeros(4),
        "length": torch.ones(4),
        "complete": torch.tensor([1.0, 1.0, 1.0, 0.0]),
        "hits_dealt": torch.ones(4),
    }
    learner._log_members(finished, worlds)
    place = 2 + 2 + 1
    assert standings.points[0, place] == 1, "won from the first seat, lost from the second"
    assert standings.games[0, place] == 2
    turret = 2
    assert standings.points[0, turret] == 0.5, "a draw is half of a point"
    assert standings.games[0, turret] == 1, "a game that did not begin at its beginning does not count"
    metrics = learner.member_metrics[0]
    assert metrics["rollout/success_rate"] == pytest.approx(1 / 3), "of the three whole games"
    assert "rollout/hits_dealt" not in metrics, "what the first seat alone reports is a metric of no member"
    learner._log_members(finished, worlds)
    assert standings.games[0, place] == pytest.approx(2 * FADES + 2), "older games count less"


def test_ratings_are_anchored_at_the_first_scripted_player_that_is_met():
    learner = learner_of("population.members=2", "league.slots=1", "league.scripted={turret: 0, scripted: 0.25}")
    league, games = learner.league, 44
    members, scripted = torch.zeros(games).long(), torch.full((games,), 3)  # the turret, in place 2, is not met
    league.standings.enter(members, scripted, torch.tensor([1.0] * 40 + [0.0] * 4))
    league.rate()
    assert league.ratings.rating[3].item() == pytest.approx(1000)
    assert 1350 < league.ratings.rating[0].item() < 1400, "ten to one, a little less for want of games"
    assert learner.best() == 0


def test_games_in_which_a_member_was_replaced_do_not_count():
    learner = learner_of("population.members=2", "league.slots=1")
    finished = {"win": torch.ones(3), "draw": torch.zeros(3)}
    worlds = torch.tensor([0, 1, 0])
    learner.league.interrupt(torch.tensor([2]))  # the first slot
    assert learner.league._counts(finished, worlds).tolist() == [False, False, True], (
        "the second game of world 0 is whole"
    )
    assert learner.league._counts(finished, worlds).tolist() == [True, True, True]


def test_a_snapshot_in_anothers_place_has_not_played_yet():
    league = learner_of("population.members=2", "league.slots=1", "league.pool=4").league
    for member in range(2):
        league.keep(member, 10)
    places = league.snapshots_from + torch.arange(4)
    league.standings.enter(torch.zeros(4).long(), places, torch.ones(4))
    league.keep(0, 20)
    assert league.standings.games[0, places].tolist() == [float(frames != 20) for frames in league.pool.frames]
    assert (league.pool.frames == 20).sum() == 1


def test_opponents_are_drawn_by_how_hard_they_are():
    learner = learner_of("population.members=2", "league.slots=1", "league.choose=hard")
    first = learner.league.snapshots_from
    learner.league.standings.enter(
        torch.zeros(200).long(), torch.full((200,), first), torch.ones(200)
    )  # always beats it
    learner.league.standings.enter(torch.zeros(200).long(), torch.full((200,), first + 1), torch.zeros(200))  # never
    held = []
    for _ in range(30):
        learner.league.draw()
        held.append(int(learner.league.held[0]))
        assert torch.equal(learner.league.slots.flat[0], learner.league.pool.snapshots.flat[held[-1]])
    assert held.count(1) >= 28


def test_an_exploiter_that_wins_begins_anew_and_is_kept_in_the_pool():
    learner = learner_of(
        "population.members=3",
        "league={exploiters: 1, slots: 1, scripted: {turret: 0, scripted: 0}}",
        "world.num_envs=8",
        "algorithm.minibatch_size=32",
    )
    stack = learner.algorithm.stack
    begun = stack.flat[2].detach().clone()
    for _ in range(2):
        learner.improve(learner.collector.collect(), 1e-2)
    grown = stack.flat[2].detach().clone()
    assert not torch.equal(begun, grown)
    learner._renew_exploiters()
    assert torch.equal(stack.flat[2], grown), "it has not shown anything yet"
    games = int(100 * EXPLOITED) + 5
    learner.league.standings.enter(torch.full((games,), 2), torch.zeros(games).long(), torch.ones(games))
    learner._renew_exploiters()
    assert torch.equal(stack.flat[2], begun)
    assert learner.algorithm.optimizer.steps[2].item() == 0
    assert (learner.league.pool.snapshots.flat == grown).all(1).any()
    assert learner.league.standings.games[2].sum() == 0
    learner.league.draw()
    assert torch.equal(learner.league.present.flat, stack.flat[:2]), "it meets the others as they are"


def test_members_that_fitness_by_rating_replaces_are_the_weakest():
    learner = learner_of("population={evolve: pbt, fitness: rating, every: 512, least_episodes: 4, margin: 0}")
    games = torch.full((50,), 0)
    for member in (0, 1, 2):
        learner.league.standings.enter(games + member, games + 3, torch.ones(50))
    learner.league.rate()
    fitness = learner.fitness()
    assert fitness.argmin() == 3
    learner.algorithm.stack.flat.data[3] = 0
    source = learner.evolution.step(600, fitness)
    learner._apply_step(source)
    parent = int(source.parents[3, 0])
    assert parent != 3
    assert torch.equal(learner.algorithm.stack.flat[3], learner.algorithm.stack.flat[parent])
    assert not learner.league.clean[(learner.seats.player == 3).any(1)].any(), "games that it is in have changed hands"


@pytest.mark.slow
def test_the_model_card_of_a_league_has_ratings(run):
    card = (run / "README.md").read_text(encoding="utf-8")
    assert "| member | rating |" in card
    for member in sorted((run / "members").iterdir()):
        rating = json.loads((member / "summary.json").read_text(encoding="utf-8"))["metrics"]["league/rating"]
        assert f"| [{int(member.name)}](members/{member.name}) | {rating:,.4g} |" in card


def test_a_members_configuration_learns_from_as_many_rows_alone(run):
    learner = learner_of()
    alone = member_experiment(learner, 1)
    assert not alone.league.enabled
    assert alone.make_learner().algorithm.rows == learner.algorithm.rows


@pytest.mark.slow
def test_ratings_of_a_run_its_past_and_scripted_players(run, tmp_path, capsys):
    picture = tmp_path / "league.png"
    words = ["league", str(run), "--games", "4", "--snapshots", "3", "--device", "cpu", "--picture", str(picture)]
    assert cli.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "a/03" in "".join(lines)
    assert " at 0" in "".join(lines)
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = rate_league([str(run)], games=4, snapshots=3, device="cpu")
    players = found["players"]
    assert players[-3:] == ["scripted", "turret", "random"]
    assert len(players) == 4 + 3 + 3
    shares = torch.tensor(found["deterministic"]["shares"])
    assert torch.allclose(shares + shares.T, torch.ones_like(shares))
    assert found["deterministic"]["rating"][-3] == 1000
    frames = [each.frames for each in snapshots_of(run, "cpu")]
    assert frames == sorted(frames)
    assert frames[0] == 0
    assert frames[-1] > 1024


def test_competitors_act_as_their_agents_do(run):
    members = [each.agent for each in snapshots_of(run, "cpu")[:2]]
    env = league().make_world(num_envs=8)
    seats = pairings(2, 8)
    seated = seat_competitors([Competitor(str(i), agent) for i, agent in enumerate(members)], seats, env)
    root = env.reset()
    logits = seated(root.copy())["agents", "logits"]
    for index, agent in enumerate(members):
        here = seats == index
        assert torch.allclose(logits[here], acting_policy(agent)(root.copy())["agents", "logits"][here], atol=1e-5)


@pytest.mark.slow
def test_fresh_members_learn_against_the_frozen_agent(run, capsys, tmp_path):
    experiment = exploiters_of(run, 2, 512, "cpu", "x")
    learner = experiment.make_learner()
    rows = agent_rows(learner.collector.collect(), "agents", learner.learning)
    assert rows.shape[1] == 2 * learner_of().algorithm.rows
    held = learner.league.slots.flat[0].clone()
    assert torch.equal(learner.league.slots.flat[1], held), "all meet the same"
    for _ in iterate(learner):
        pass
    assert torch.equal(learner.league.slots.flat[0], held), "it does not learn"
    words = ["exploit", str(run), "--frames", "512", "--members", "2", "--games", "4", "--device", "cpu", "--name", "y"]
    assert cli.main(words) == 0
    assert "after 512 frames the best of 2 takes" in capsys.readouterr().out


def test_agents_with_memory_have_leagues_too():
    *_, last = learn(league("policy=gru", "total_frames=512"))
    assert last.metrics["league/pool"] >= 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["league.past=2"], "league.past is 2"),
        (["league.scripted.turret=-1"], "league.scripted.turret is -1"),
        (["+league.scripted.nobody=0"], "names nobody, no player of this world: use scripted, turret, random"),
        (["league.choose=x"], "league.choose is 'x': use one of hard, even, uniform"),
        (["league.slots=0"], "league.slots is 0"),
        (["league.slots=7"], "too few for 14 balanced worlds"),
        (["league.pool=2"], "league.pool is 2"),
        (["league.exploiters=4"], "leave one to be exploited"),
        (["league.exploiters=1", *PBT], "would be copied"),
        (["league.exploiters=1", "league.against=[a,b]"], "exploiters have no opponent"),
        (["league.against=[a]"], "names 1 runs for 2 slots"),
        (["league.against=[a,b]"], "there is no run a"),
        (["league.enabled=false", *PBT, "population.fitness=rating"], "which only a league gives"),
        (["+world.opponent=turret"], "no two seats with a winner"),
        ([*PBT, "population.fitness=hits_dealt"], "use a statistic"),
        (["governor.enabled=true"], "governor.enabled"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(words, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        league(*words).make_learner()
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_copies_snapshots_draws_and_exploiters_compile_nothing_anew():
    words = [word for word in SMALL if word not in EAGER]
    more = [
        "league={exploiters: 1, slots: 1, scripted: {turret: 0, scripted: 0}}",
        "world.num_envs=24",
        "algorithm.minibatch_size=144",
    ]
    learner = Experiment.load("duel_league", *words, *more).make_learner()
    iterations = iterate(learner)
    for _ in range(3):
        next(iterations)
    graphs = counters["stats"]["unique_graphs"]
    for member in range(4):
        learner.league.keep(member, learner.frames)
    learner.league.draw()
    learner.league.standings.enter(torch.full((90,), 3), torch.zeros(90).long(), torch.ones(90))
    learner._renew_exploiters()
    for _ in range(2):
        next(iterations)
    assert counters["stats"]["unique_graphs"] == graphs
    assert learner.modes() == {"rollout": "compiled", "update": "compiled"}


def test_a_broken_member_changes_no_other_members_answers():
    learner = learner_of()
    learner.algorithm.stack.flat.data[1] = torch.nan
    answers = learner.algorithm.behavior.policy(learner.collector.root.copy())["agents", "logits"]
    broken = ~answers.isfinite().all(-1)
    assert torch.equal(broken, learner.seats.player == 1)
