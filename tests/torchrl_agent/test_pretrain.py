"""Pre-training through the command line, its figures on data made by hand, and modules put into other agents."""

import json
import math

import pytest
import torch
from launching import Bomb
from tensordict import TensorDict
from torchrl.envs import GymEnv

from torchrl_agent import cli, keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.heads import action_choice
from torchrl_agent.models.pretrained import (
    MODULES,
    ModuleError,
    agent_modules,
    load_module,
    load_modules,
    read_module,
    save_module,
)
from torchrl_agent.modules.distributions import MaskedCategorical
from torchrl_agent.modules.networks import NEARLY_SHUT, GatedConcat, symlog
from torchrl_agent.modules.perception import PerceptionConfig, PerceptionLoss
from torchrl_agent.modules.records import auroc
from torchrl_agent.modules.world_model import WorldModel, WorldModelConfig, WorldModelLoss, calibration
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.pretrain import PretrainConfig, make_updater, prepare, pretrain, switch_on, total_loss
from torchrl_agent.pretrain import learn as teach
from torchrl_agent.pretrain.data import Disturbed, choose_players, collect, discounted_returns, make_sequences
from torchrl_agent.pretrain.lessons import Best, CloningLoss
from torchrl_agent.runs.metrics import read_metrics
from torchrl_agent.transforms import RewardScaler

SMALL = [
    "device=cpu",
    "world.num_envs=8",
    "world.rules={max_steps: 9}",  # several episodes in each sequence
    "algorithm={rollout_steps: 16, minibatch_size: 128}",
    "model.hidden_sizes=[16]",
    "model.perception={memory_size: 12, belief_size: 8, embedding_size: 16}",
    "model.world_model.hidden_size=16",
    "model.manager.steps=4",
    "evaluation.episodes=4",
    "acceleration={step: false, advantages: false, update: false}",
]
QUICK = ["--frames", "256", "--updates", "25", "--learning-rate", "3e-3"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of every module, pre-trained through the command line, one upon the other as far as they read it."""
    torch.set_num_threads(1)
    base = tmp_path_factory.mktemp("lessons")
    folders = {name: base / name for name in MODULES}
    seen = f"pretrained.perception={folders['perception']}"
    for name in MODULES:
        upon = [seen, "--freeze-perception"] if name != "perception" else []
        arguments = ["pretrain", name, "town_agent", *SMALL, *QUICK, *upon, "--output", str(folders[name])]
        assert cli.main(arguments) == 0
    return folders


def report(folder):
    return json.loads((folder / "report.json").read_text())


def agent(*overrides):
    return Experiment.load("town_agent", *SMALL, *overrides).make_learner().agent


def weights(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_reading_a_module_never_runs_code(tmp_path):
    names, bomb = ("parts", "auxiliary", "observations", "statistics"), Bomb(tmp_path / "exploded")
    torch.save({"format": 2, "module": "perception", **dict.fromkeys(names, bomb)}, tmp_path / "module.pt")
    with pytest.raises(ModuleError, match="damaged"):
        read_module(tmp_path)
    assert not (tmp_path / "exploded").exists()


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_module_learns_and_leaves_its_folder(folders, name):
    found = report(folders[name])
    assert total_loss(found["validation_after"]) < total_loss(found["validation_before"])
    assert found["frames"] >= 256
    assert found["players"] == (["greedy"] if name == "policy" else ["greedy", "random"])
    rows = read_metrics(folders[name] / "metrics.csv")
    assert [int(row["update"]) for row in rows] == list(range(1, 26))
    losses_by_update = [
        {key.partition("/")[2]: float(value) for key, value in row.items() if "validation/" in key} for row in rows
    ]
    assert min(map(total_loss, losses_by_update)) == pytest.approx(total_loss(found["validation_after"]))
    assert losses_by_update[found["best_update"] - 1] == pytest.approx(found["validation_after"])
    assert losses_by_update[-1] == pytest.approx(found["validation_last"])
    again = Experiment.load(folders[name] / "config.yaml")
    assert again.name == "town_agent"
    assert torch.load(folders[name] / "module.pt", weights_only=True)["module"] == name
    assert not list(folders[name].glob(".*")), "nothing half written is left"


@pytest.mark.slow
def test_reports_hold_figures_beside_their_baselines(folders):
    figures = {name: report(folders[name])["figures"] for name in MODULES}
    assert {"reconstruction_error", "prediction_error", "prediction_error_of_copying_the_last"} <= set(
        figures["perception"]
    )
    assert {"state_error_1", "state_error_5", "state_error_15_of_no_change", "end_auroc"} <= set(figures["world_model"])
    assert len(figures["world_model"]["error_by_confidence_quartile"]) == 4
    assert {"goal_accuracy", "action_accuracy_of_the_most_frequent", "energy_error"} <= set(figures["social_model"])
    assert {"accuracy", "accuracy_of_the_most_frequent"} <= set(figures["policy"])
    world = report(folders["policy"])["world"]
    assert set(world) == {"policy", "greedy"}
    assert all(math.isfinite(judged["return_mean"]) and judged["episodes"] == 4 for judged in world.values())


@pytest.mark.slow
def test_a_world_of_one_agent_and_plain_networks(tmp_path, capsys):
    arguments = ["pretrain", "policy", "smoke", "device=cpu", "evaluation.episodes=4", *QUICK, "--output"]
    assert cli.main([*arguments, str(tmp_path / "clone")]) == 0
    assert "accuracy_of_the_most_frequent" in capsys.readouterr().out
    found = report(tmp_path / "clone")
    assert found["players"] == ["scripted"]
    assert total_loss(found["validation_after"]) < total_loss(found["validation_before"])
    assert load_module(Experiment.load("smoke", "device=cpu").make_learner().agent, tmp_path / "clone") == "policy"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["policy", "cartpole", "world.num_envs=8"], "no hand-written player to imitate"),
        (["perception", "town_agent", "--players", "greedy", "genius"], "no player 'genius'"),
        (["perception", "town_agent", "--disturbed", "1"], "disturbed is 1.0: it must be at most 0.8"),
        (["perception", "town_agent", "world.num_envs=3", "--frames", "16"], "world.num_envs is 3 but 2 players"),
        (["social_model", "town_agent", "world.privileged=false"], "privileged"),
        (["perception", "town_agent", "frozen=[perception]"], "frozen names perception"),
        (["perception", "town_agent", "--updates", "0"], "updates is 0: it must be at least 1"),
        (["perception", "town_agent", "pretrained.perception=nowhere.pt"], "there is no module nowhere.pt"),
        (
            ["world_model", "town_agent", "model.world_model.predict_others=true"],
            "set model.world_model.predict_others",
        ),
        (["policy", "town_agent", "model.world_model.improvement=1"], "set model.world_model.improvement=0"),
    ],
)
def test_what_cannot_work_is_one_line_and_leaves_nothing(tmp_path, capsys, arguments, sentence):
    module, config, *rest = arguments
    small = [] if config == "cartpole" else SMALL
    output = tmp_path / "out"
    assert cli.main(["pretrain", module, config, *small, *rest, "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not output.exists()


def test_an_update_that_is_not_finite_is_skipped_and_reported():
    config = PretrainConfig(frames=64, updates=4)
    lesson, data = prepare("policy", Experiment.load("town", *SMALL), config)
    poison, found = [math.nan, 1.0, math.inf, math.nan], []
    lesson.parameters[-1].register_hook(lambda gradient: gradient * poison[len(found)])
    before = weights(lesson.learning)
    for _, metrics, _ in teach(lesson, make_updater(lesson, 1e-3, False), data, config):
        found.append((metrics["train/skipped"], same(weights(lesson.learning), before)))
        assert "train/grad_norm/actor" in metrics
    assert found == [(1, True), (0, False), (1, False), (1, False)]
    assert all(value.isfinite().all() for value in weights(lesson.learning).values())


def test_pre_training_of_which_nothing_comes_is_no_success():
    config = PretrainConfig(frames=64, updates=9)
    lesson, data = prepare("policy", Experiment.load("town", *SMALL), config)
    lesson.parameters[-1].register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(NonFiniteError, match="in 3 updates in a row: lower --learning-rate"):
        list(teach(lesson, make_updater(lesson, 1e-3, False), data, config))


@pytest.mark.slow
def test_the_weights_that_did_best_where_they_did_not_learn_are_kept(tmp_path):
    plain = [item for item in SMALL if "hidden_sizes" not in item]
    experiment = Experiment.load("town", "model.hidden_sizes=[64]", *plain)
    config = PretrainConfig(frames=256, updates=60, learning_rate=0.05)
    found = pretrain("policy", experiment, config, tmp_path / "clone")
    rows = read_metrics(tmp_path / "clone" / "metrics.csv")
    losses = {int(row["update"]): float(row["validation/loss_cloning"]) for row in rows}
    assert losses[found["best_update"]] == min(losses.values()) == total_loss(found["validation_after"])
    assert losses[60] == total_loss(found["validation_last"])
    assert total_loss(found["validation_after"]) < total_loss(found["validation_last"]) < float("inf"), "it overfits"
    experiment.pretrained.policy = str(tmp_path / "clone")
    lesson, data = prepare("policy", experiment, config)  # the same data, since the same seed
    assert lesson.validate(data.validation) == pytest.approx(found["validation_after"], abs=1e-6)
    assert found["figures"]["accuracy"] == pytest.approx(lesson.validate(data.test)["accuracy"], abs=0.02)


def test_the_first_weights_stay_if_nothing_better_comes():
    class Pupil:
        learning = torch.nn.BatchNorm1d(1)

    first = weights(Pupil.learning)
    best = Best(Pupil, {"loss_a": 1.0, "loss_b": 1.0, "accuracy": 0.0})
    for update, loss in enumerate((3.0, math.nan, 2.5), 1):
        Pupil.learning.weight.data.add_(1)
        Pupil.learning.running_mean.add_(1)  # statistics belong to the weights
        best.consider(update, {"loss_a": loss, "accuracy": 1.0})
    best.restore()
    assert best.update == 0 and same(weights(Pupil.learning), first)
    Pupil.learning.weight.data.add_(1)
    best.consider(4, {"loss_a": 1.5, "loss_b": 0.25})
    second = weights(Pupil.learning)
    Pupil.learning.weight.data.add_(1)
    best.restore()
    assert best.update == 4 and same(weights(Pupil.learning), second)


# --- in other agents --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_a_loaded_module_gives_the_same_bits(folders, name):
    """Two agents that began differently say the same once the file is in both."""
    one, two = agent("seed=1"), agent("seed=2")
    assert not same(weights(agent_modules(one)[name]), weights(agent_modules(two)[name]))
    for each in (one, two):
        assert load_module(each, folders[name]) == name
    file = read_module(folders[name])
    for part, saved in file.parts.items():
        assert same(weights(agent_modules(one)[part]), saved)
        assert same(weights(agent_modules(two)[part]), saved)
    root = Experiment.load("town_agent", *SMALL).make_learner().collector.root["agents"]
    outputs = []
    for each in (one, two):
        torch.manual_seed(0)
        if name == "perception":
            outputs.append(each.perception(each.normalizer(root.clone()))[keys.BELIEF, "mean"])
        elif name == "world_model":
            belief = each.perception(each.normalizer(root.clone()))[keys.BELIEF]
            plan = torch.zeros(*belief.shape, 1, 3, dtype=torch.int64)
            outputs.append(each.world_model.imagine(belief["mean"], belief["proprioception"], plan)["states"])
        elif name == "social_model":
            outputs.append(each.social_model(each.perception(each.normalizer(root.clone())))[keys.SOCIAL, "goal"])
        else:
            features = torch.ones(1, each.actor_head[0].module[0].in_features)
            outputs.append(each.actor_head[0](TensorDict({keys.FEATURES: features}, [1]))[keys.LOGITS])
    assert torch.equal(*outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_compiled_losses_equal_eager(name):
    found = []
    for compiled in (False, True):
        experiment = Experiment.load("town_agent", *SMALL)
        lesson, data = prepare(name, switch_on(name, experiment), PretrainConfig(frames=256))
        updater = make_updater(lesson, 1e-3, compiled)
        torch.manual_seed(0)
        with torch._inductor.config.patch(fallback_random=True):  # compiled noise is eager noise
            metrics = updater.update(data.train)
        gradients = {name: value.grad for name, value in lesson.learning.named_parameters() if value.grad is not None}
        found.append({**metrics.to_dict(), **gradients})
        assert updater.program.compiled == compiled, "it fell back"
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)


def test_the_controller_reads_a_pretrained_module_at_once(tmp_path):
    def gates(agent):
        (join,) = (part for part in agent.encoder if isinstance(part, GatedConcat))
        return dict(zip(join.in_keys[1:], join.gates.tolist(), strict=True))

    mine, file = agent(), tmp_path / "module.pt"
    before = gates(mine)
    assert set(before) == {keys.SOCIAL_EMBEDDING, keys.IMAGINATION_FEATURES, keys.GOAL_EMBEDDING}
    assert all(gate == pytest.approx(NEARLY_SHUT) for gate in before.values())
    save_module(file, agent("seed=2"), "social_model", RewardScaler(1))
    load_module(mine, file)
    assert gates(mine) == {**before, keys.SOCIAL_EMBEDDING: 1.0}


def test_a_policy_reads_the_other_modules_as_when_it_was_pretrained(tmp_path):
    one, file = agent("seed=2"), tmp_path / "module.pt"
    (join,) = (part for part in one.encoder if isinstance(part, GatedConcat))
    join.gates.data.copy_(torch.tensor([0.3, 0.5, 0.7]))
    save_module(file, one, "policy", RewardScaler(1))
    for mine in (agent(), agent("seed=3")):
        load_module(mine, file, frozen=True)
        (join,) = (part for part in mine.encoder if isinstance(part, GatedConcat))
        assert join.gates.tolist() == pytest.approx([0.3, 0.5, 0.7])
        assert not join.gates.requires_grad, "a frozen policy learns nothing"


def test_a_world_model_goes_on_in_the_unit_of_rewards_of_its_pretraining(tmp_path):
    def learner(*changes, load=True):
        return Experiment.load("town_agent", *SMALL, *changes).make_learner(load)

    scaler, file = RewardScaler(1), tmp_path / "module.pt"
    scaler.running.update(torch.tensor([-12.5, 12.5]))
    save_module(file, agent("seed=2"), "world_model", scaler)
    brought = f"pretrained.world_model={file}"
    rewards = [
        learner(*changes).algorithm.scaler.scale(torch.ones(())).item()
        for changes in ([], [brought], [brought, "frozen=[world_model]"])
    ]
    assert rewards == pytest.approx([1, 1 / 12.5, 1 / 12.5])
    again = [
        learner(brought, f"frozen=[{name}]", load=False).algorithm.scaler for name in ("world_model", "perception")
    ]
    assert [scaler.frozen for scaler in again] == [True, False], "also in a run that goes on from its checkpoint"
    assert not learner("frozen=[world_model]").algorithm.scaler.frozen, "nothing has trained it"
    upon = Experiment.load("town_agent", *SMALL, brought)
    _, data = prepare("social_model", upon, PretrainConfig(frames=128))
    assert data.scaler.scale(torch.ones(())).item() == pytest.approx(1 / 12.5)


@pytest.mark.parametrize(
    ("changes", "held"),
    [([], {"perception", "social_model"}), (["model.social_model.context=false"], {"social_model"})],
)
def test_the_file_of_a_social_model_brings_the_perception_whose_beliefs_it_reads(changes, held, tmp_path):
    one, two, file = agent("seed=1", *changes), agent("seed=2", *changes), tmp_path / "module.pt"
    save_module(file, one, "social_model", RewardScaler(1))
    load_module(two, file)
    assert set(read_module(file).parts) == held
    parts = [agent_modules(each) for each in (one, two)]
    equal = {name for name in ("perception", "social_model") if same(*(weights(part[name]) for part in parts))}
    assert equal == held


@pytest.mark.slow
def test_frozen_modules_stay_and_others_learn(folders):
    paths = ["perception", "world_model", "social_model"]
    pretrained = [f"pretrained.{name}={folders[name]}" for name in paths]
    experiment = Experiment.load(
        "town_agent", *SMALL, *pretrained, "frozen=[perception,social_model]", "total_frames=256"
    )
    learner = None
    for iteration in learn(experiment):
        learner = iteration.learner
        fixed = {
            id(value)
            for name in ("perception", "social_model")
            for value in agent_modules(learner.agent)[name].parameters()
        }
        optimized = {id(value) for value in learner.algorithm.updater.parameters}
        assert not fixed & optimized
        assert iteration.metrics["train/updates"] > 0
    trained = {name: weights(module) for name, module in agent_modules(learner.agent).items()}
    for name in ("perception", "social_model"):
        assert same(trained[name], read_module(folders[name]).parts[name]), f"{name} was frozen"
    before = read_module(folders["world_model"]).parts["world_model"]
    assert all(
        not torch.equal(value, before[name]) for name, value in trained["world_model"].items() if "weight" in name
    )
    statistics = read_module(folders["perception"]).statistics
    assert learner.agent.normalizer.running.mean.tolist() == statistics["obs_mean"], "frozen perception sees the same"


@pytest.mark.slow
def test_freezing_one_module_more_frees_none(folders):
    mine = agent()
    for name in ("perception", "social_model"):
        load_module(mine, folders[name], frozen=True)
        assert mine.normalizer.frozen, f"after {name}, perception must still see the same"


@pytest.mark.slow
def test_a_run_with_pretrained_modules_resumes_without_their_files(folders, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "module.pt").write_bytes((folders["perception"] / "module.pt").read_bytes())
    arguments = ["frozen=[perception]", f"run.folder={tmp_path}", "run={name: run, film: false, tensorboard: false}"]
    start = ["train", "town_agent", *SMALL, f"pretrained.perception={moved}", *arguments, "total_frames=128"]
    assert cli.main([*start, "run.final_evaluation=false"]) == 0
    (moved / "module.pt").unlink()
    assert cli.main(["resume", str(tmp_path / "run"), "total_frames=256"]) == 0


@pytest.mark.slow
def test_what_does_not_fit_is_named_and_changes_nothing(folders, tmp_path):
    mine = agent()
    before = weights(mine)
    foreign, damaged = tmp_path / "foreign.pt", tmp_path / "damaged.pt"
    torch.save({"agent": {}}, foreign)
    damaged.write_bytes(b"no file of torch")
    for path, sentence in (
        (foreign, "no pre-trained module"),
        (damaged, "no pre-trained module"),
        ("gone", "no module"),
    ):
        with pytest.raises(ValueError, match=sentence):
            load_module(mine, path)
    with pytest.raises(ValueError, match="there is no module 'soul'"):
        load_modules(mine, {"soul": str(folders["social_model"])})
    with pytest.raises(ValueError, match="holds the module social_model, not perception"):
        load_modules(mine, {"perception": str(folders["social_model"])})
    assert same(before, weights(mine))
    larger = agent("model.perception.belief_size=9")
    kept = weights(larger)
    with pytest.raises(ValueError, match=r"is \[8, 28\] in .* but \[9, 28\] in this agent"):
        load_modules(larger, {"social_model": str(folders["social_model"]), "perception": str(folders["perception"])})
    assert same(kept, weights(larger)), "all or nothing"
    with pytest.raises(ValueError, match="this agent has no world_model"):
        load_module(agent("model.world_model.enabled=false"), folders["world_model"])
    with pytest.raises(ValueError, match="this world shows"):
        load_module(agent("world.level=L2", "world.num_agents=2"), folders["perception"])


@pytest.mark.slow
def test_two_files_must_agree_on_what_both_hold(folders, tmp_path):
    other = tmp_path / "other"
    quick = ["--frames", "64", "--updates", "1", "--output", str(other)]
    assert cli.main(["pretrain", "world_model", "town_agent", *SMALL, *quick]) == 0
    with pytest.raises(ValueError, match="different versions of perception"):
        load_modules(agent(), {"perception": folders["perception"], "world_model": other})


# --- data -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded():
    experiment = Experiment.load("town_agent", *SMALL)
    env = experiment.make_world()
    mine = experiment.make_agent(env)
    return mine, collect(env, mine, choose_players(env, ["wait", "random"], False), 8 * 32, 16, goals=False)


def test_goals_are_recorded_and_thoughts_are_not():
    experiment = Experiment.load("town_agent", *SMALL)
    env = experiment.make_world()
    mine = experiment.make_agent(env)
    rollout = collect(env, mine, choose_players(env, ["wait"], False), 8 * 16, 16, goals=True)
    there = set(rollout.keys(True, True))
    assert set(mine.manager.replayed_keys) <= there
    assert not there & (set(mine.replayed_keys) - set(mine.manager.replayed_keys)), "they would be of untrained modules"


def test_every_player_has_worlds_of_its_own(recorded):
    _, rollout = recorded
    actions = rollout[keys.ACTION].unflatten(1, (8, 4))
    assert (actions[:, 0::2] == 5).all(), "worlds 0, 2, 4 wait"
    assert len(actions[:, 1::2].unique()) > 3


def test_sequences_are_rows_of_one_agent_and_begin_without_memory(recorded):
    mine, rollout = recorded[0], recorded[1].clone()
    rollout[keys.HIDDEN].fill_(1.0)  # as if the agent had looked on
    data = make_sequences(rollout, mine, 8, ["wait", "random"], 16, RewardScaler(32, enabled=False))
    assert data.train.shape == (2 * 2 * 4 * 2, 16)  # 2 worlds of 2 players, 4 agents, 2 sequences
    assert data.validation.shape == data.test.shape == (1 * 2 * 4 * 2, 16)
    assert torch.equal(data.train["meters"][1], rollout["meters"][16:, 0]), "the second half of the first agent's life"
    assert torch.equal(data.validation["meters"][0], rollout["meters"][:16, 16])
    assert torch.equal(data.test["meters"][0], rollout["meters"][:16, 24])
    assert data.train[keys.IS_INIT][:, 0].all()
    assert not data.train[keys.HIDDEN].any()
    assert mine.normalizer.running.count == data.train[keys.VALID].sum(), "what is held back is not looked at"


def test_a_world_without_players_is_played_at_random():
    env = GymEnv("CartPole-v1")
    ((name, player),) = choose_players(env, None, imitate=False).items()
    played = env.rollout(20, player, break_when_any_done=False)
    assert name == "random" and set(played["action"].argmax(-1).tolist()) == {0, 1}


def test_a_player_is_led_astray_for_its_share_of_steps_in_stretches():
    torch.manual_seed(0)
    env = Experiment.load("town_agent", *SMALL, "world.num_envs=64").make_world()
    players = env.players()
    player = Disturbed(players["wait"], players["rest"], env, 0.25)
    wait, rest = (players[name](env.reset())["agents", "action"][0, 0] for name in ("wait", "rest"))
    root = env.reset()
    actions = torch.stack([player(root)["agents", "action"].clone() for _ in range(400)])  # [steps, worlds, agents]
    assert set(actions.unique().tolist()) == {int(wait), int(rest)}
    assert (actions == actions[..., :1]).all(), "a world's agents together"
    astray = actions[..., 0] == rest
    assert astray.float().mean().item() == pytest.approx(0.25, abs=0.02)
    begun = (astray[1:] & ~astray[:-1]).sum()
    assert (astray.sum() / begun).item() == pytest.approx(5, abs=0.5), "mean length of a stretch"
    assert not astray.all(1).any() and astray.any(0).all(), "every world by itself"


def test_disturbed_players_do_something_random():
    env = Experiment.load("town_agent", *SMALL).make_world()
    ((name, player),) = choose_players(env, ["wait"], imitate=True, disturbed=0.5).items()
    root = env.reset()
    assert name == "wait"
    assert len({int(action) for _ in range(40) for action in player(root)["agents", "action"].unique()}) > 3


def test_discounted_returns_by_hand():
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0]).reshape(4, 1, 1)
    done = torch.tensor([False, True, False, False]).reshape(4, 1, 1)
    # 1 + 0.5 * 2, 2 (the episode ends), 3 + 0.5 * 4, 4
    assert discounted_returns(reward, done, 0.5).flatten().tolist() == [2.0, 2.0, 5.0, 4.0]


# --- figures ----------------------------------------------------------------------------------------------------------


def test_auroc_by_hand():
    positive = torch.tensor([False, False, True, True])
    assert auroc(torch.tensor([0.1, 0.2, 0.3, 0.4]), positive) == 1
    assert auroc(torch.tensor([0.4, 0.3, 0.2, 0.1]), positive) == 0
    assert auroc(torch.tensor([0.1, 0.4, 0.35, 0.8]), positive) == pytest.approx(3 / 4)
    assert auroc(torch.tensor([0.0, 0.5, 0.5, 1.0]), positive) == pytest.approx(3.5 / 4), "a tie counts half"
    assert auroc(torch.ones(3), torch.zeros(3, dtype=torch.bool)) is None


def frames(rows, steps, **entries):
    flags = {name: torch.zeros(rows, steps, 1, dtype=torch.bool) for name in (keys.DONE, keys.TERMINATED)}
    valid = torch.ones(rows, steps, dtype=torch.bool)
    return TensorDict({**flags, keys.VALID: valid, **entries}, [rows, steps])


def test_perception_is_measured_against_the_mean_and_the_last():
    seen = torch.tensor([0.0, 1.0, 0.0, 1.0]).reshape(1, 4, 1)
    belief = TensorDict({"mean": seen}, [1, 4])
    data = frames(
        1, 4, **{keys.NORMALIZED: seen, keys.BELIEF: belief, keys.ACTION: torch.zeros(1, 4, dtype=torch.int64)}
    )

    class First(torch.nn.Module):
        def forward(self, values):
            return values[..., :1]

    loss = PerceptionLoss(PerceptionConfig(), 1, [2], "silu")
    loss.decoder, loss.predictor = First(), First()
    figures = loss.figures(data, data)
    assert figures["reconstruction_error"] == 0
    # the mean 0.5 is wrong by 0.25, what was seen last by 1
    assert figures["prediction_error"] == figures["prediction_error_of_copying_the_last"] == pytest.approx(4)


class Clock(WorldModel):
    """Foresees that the own state grows by 0.1 a step, reward 1, no end."""

    def forward(self, belief, known, action):
        opinions = torch.cat((known + 0.1, torch.ones_like(known)), -1).unsqueeze(-2).expand(*known.shape[:-1], 4, 2)
        reward = symlog(torch.ones(known.shape[:-1]))
        return {
            "belief": belief,
            "proprioception": known + 0.1,
            "reward": reward,
            "end": known[..., 0] - 9,  # unlikely, though likelier as time goes on
            "opinions": opinions,
        }


def test_the_world_model_is_measured_by_hand():
    steps = torch.arange(20.0).reshape(1, 20, 1)
    own = (0.1 * steps).expand(2, 20, 1)
    belief = TensorDict({"mean": torch.zeros(2, 20, 3), "proprioception": own}, [2, 20])
    actions, reward = torch.zeros(2, 20, dtype=torch.int64), torch.ones(2, 20, 1)
    data = frames(2, 20, **{keys.BELIEF: belief, keys.ACTION: actions, keys.REWARD: reward})
    data[keys.TERMINATED][:, -1] = data[keys.DONE][:, -1] = True
    model = Clock(3, 1, [2], WorldModelConfig(enabled=True), "silu", 0.9)
    figures = WorldModelLoss(model).figures(data, data)
    assert [figures["state_error_1"], figures["state_error_15"]] == pytest.approx([0, 0], abs=1e-9)
    # starts 0..4: the mean is 0.95, so its squared errors after one step are (0.85 .. 0.45)^2, of no change 0.01
    by_mean = sum((0.95 - 0.1 * step) ** 2 for step in range(1, 6)) / 5
    assert figures["state_error_1_of_no_change"] == pytest.approx(0.01 / by_mean, rel=1e-4)
    assert figures["changes_within_tolerance"] == figures["rewards_within_tolerance"] == 1
    assert figures["no_change_within_tolerance"] == 0
    assert figures["end_auroc"] == 1, "the end has the highest logit"
    assert figures["error_by_confidence_quartile"] == pytest.approx([0, 0, 0, 0], abs=1e-6)


class Doubtful(WorldModel):
    """Imagines own states that are off by 0.4, 0.1, 0.3 and 0.2, and knows it."""

    def imagine(self, belief, known, actions):
        off, sure = torch.tensor([0.4, 0.1, 0.3, 0.2]), torch.tensor([0.1, 0.9, 0.2, 0.5])
        states = (torch.arange(1.0, 5.0) + off).reshape(1, 4, 1, 1, 1)
        return TensorDict({"states": states, "confidence": sure.reshape(1, 4, 1)}, [1, 4, 1])


def test_errors_are_reported_from_the_least_confident_quarter_on():
    own = torch.arange(5.0).reshape(1, 5, 1)
    belief = TensorDict({"mean": torch.zeros(1, 5, 3), "proprioception": own}, [1, 5])
    data = frames(1, 5, **{keys.BELIEF: belief, keys.ACTION: torch.zeros(1, 5, dtype=torch.int64)})
    model = Doubtful(3, 1, [2], WorldModelConfig(enabled=True, horizon=1), "silu", 0.9)
    found = calibration(model, data)["error_by_confidence_quartile"]
    assert found == pytest.approx([0.4, 0.3, 0.2, 0.1], rel=1e-4)


CHOICE = action_choice({"logits": keys.LOGITS, "mask": keys.ACTION_MASK}, MaskedCategorical, {})


def test_the_policy_is_measured_against_the_most_frequent_action():
    action = torch.tensor([[0, 1, 1, 2]])
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 1, 2, 2]]), 3).float()
    data = frames(1, 4, **{keys.ACTION: action, keys.LOGITS: logits})
    data[keys.VALID][0, 3] = False
    figures = CloningLoss([3], CHOICE).figures(data, data)
    assert figures["accuracy"] == figures["accuracy_of_the_most_frequent"] == pytest.approx(2 / 3)
    train = frames(1, 4, **{keys.ACTION: torch.zeros(1, 4, dtype=torch.int64)})
    figures = CloningLoss([3], CHOICE).figures(data, train)
    assert figures["accuracy_of_the_most_frequent"] == pytest.approx(1 / 3), "frequent in what was learned from"


def test_cloning_leaves_out_the_dead_and_the_forbidden():
    logits = torch.zeros(1, 3, 2, requires_grad=True)
    data = frames(1, 3, **{keys.LOGITS: logits, keys.ACTION: torch.tensor([[0, 1, 1]])})
    data[keys.ACTION_MASK] = torch.tensor([[[True, True], [True, False], [True, True]]])
    data[keys.VALID][0, 2] = False
    losses = CloningLoss([2], CHOICE)(data)
    assert losses["loss_cloning"].item() == pytest.approx(math.log(2))
    losses["loss_cloning"].backward()
    assert logits.grad[0, 0].any() and not logits.grad[0, 1:].any()
    assert logits.grad.isfinite().all()
    data[keys.VALID][0, 2] = True
    data[keys.LOGITS] = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    figures = CloningLoss([2], CHOICE).figures(data, data)
    assert figures["accuracy"] == 1, "nobody can do what is forbidden"
    assert figures["accuracy_of_the_most_frequent"] == 0.5, "of the two that count"


def test_the_function_does_what_the_command_does(tmp_path):
    experiment = Experiment.load("town_agent", *SMALL)
    found = pretrain("perception", experiment, PretrainConfig(frames=64, updates=2), tmp_path / "out")
    assert found["folder"] == str(tmp_path / "out")
    assert experiment == Experiment.load("town_agent", *SMALL), "the experiment is left as it was"
