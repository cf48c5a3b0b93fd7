"""One step of the growth world: operate, train, let time pass, evaluate, govern, reward; and the governor, which
protects hosts from numerical damage by vital signs, snapshots and rollback on the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from envs.growth.actions import Tables, any_of
from envs.growth.lifecycle import operate, prune, tick
from envs.growth.network import Mixture, accuracy, configurations, cross_entropy, forward, host_forward
from envs.growth.optimizer import EXPLODING, VANISHING, Lesson, Trained, rows_at, train
from envs.growth.rules import DOWN, GATE, KINDS, MULTIPLY, Rules, Stage
from envs.growth.scoring import counted, rent, rewarded
from envs.growth.state import (
    STREAM_FAULT,
    Adam,
    Course,
    Guard,
    Host,
    Modules,
    Slots,
    State,
    Weights,
    draw_module,
    world_first,
    world_last,
)
from envs.growth.tasks import POOL, Task
from envs.toolkit.chance import Chance
from envs.toolkit.records import choose, map_record

VELOCITY_SHARE = 0.3
"""Weight of the newest change in the mean of a contribution's changes."""
LARGEST_LOSS = 100.0
"""Loss that stands for larger ones and those that are not finite."""
RATIO_SHARE = 0.1
"""Weight of the newest ratio of gradient norms in its mean."""


def advance(state: State, action: Tensor, chance: Chance, task: Task, rules: Rules, tables: Tables) -> State:
    """Return the state after one step with the actions int64 [8, N]; the reward is that of their consequences."""
    before = state.slots
    effect = operate(before, action, state.measures.accuracy, rules, tables)
    state = germinate(state._replace(slots=effect.slots), effect.germinated, chance, rules)
    state = damage(state, chance, rules)
    state = learn(state, chance, task, rules, tables)
    slots = tick(state.slots, state.measures.accuracy, rules)
    state, loss = evaluate(state._replace(slots=slots, step=state.step + 1), task, rules, tables)
    state = govern(state, loss, effect.kept, rules, tables)
    now = rent(state.slots, host_size(state.weights.host), tables)
    tally = counted(state.tally, before, state.slots, effect.operation, effect.success, now)
    tally = tally._replace(rollbacks=tally.rollbacks + state.guard.panics)
    return rewarded(state._replace(tally=tally, course=recorded(state)), rules)


def recorded(state: State) -> Course:
    """Return the course of the episode with the present step added."""
    course, measures, slots = state.course, state.measures, state.slots
    here = torch.arange(len(course.accuracy), device=state.step.device).unsqueeze(1) == state.step - 1
    return Course(
        torch.where(here, measures.accuracy, course.accuracy),
        torch.where(here, measures.twin, course.twin),
        torch.where(here.unsqueeze(1), slots.stage.to(torch.int8), course.stage),
        torch.where(here.unsqueeze(1), present_alpha(slots), course.alpha),
    )


def germinate(state: State, where: Tensor, chance: Chance, rules: Rules) -> State:
    """Put fresh weights into the slots ``where`` (bool [S, N]), and forget what their memory held."""
    adam, modules = state.adam, state.weights.modules
    fresh = draw_module(chance, rules, modules)

    def renewed(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(where.view(len(where), *[1] * (old.ndim - 2), -1), new, old)

    first, second = (
        moment._replace(modules=map_record(lambda value: renewed(value, torch.zeros_like(value)), moment.modules))
        for moment in (adam.first, adam.second)
    )
    adam = adam._replace(first=first, second=second, slot_updates=torch.where(where, 0.0, adam.slot_updates))
    modules = map_record(renewed, modules, fresh)
    return state._replace(weights=state.weights._replace(modules=modules), adam=adam)


def damage(state: State, chance: Chance, rules: Rules) -> State:
    """Multiply the weights of hosts that a fault strikes."""
    if rules.fault_probability == 0:
        return state
    strikes = chance.uniform(STREAM_FAULT, 1)[0] < rules.fault_probability
    host = map_record(lambda value: torch.where(strikes, value * rules.fault_scale, value), state.weights.host)
    return state._replace(weights=state.weights._replace(host=host))


def host_size(host: Host) -> int:
    """Return the number of parameters of one host."""
    return sum(value[..., 0].numel() for value in host)


def learn(state: State, chance: Chance, task: Task, rules: Rules, tables: Tables) -> State:
    """Train hosts, twins and modules on the minibatches of a step."""
    slots = state.slots
    active = any_of(slots.stage, Stage.TRAINING, *Stage.JOINED) & (slots.mode != DOWN)
    adam, twin = state.adam, state.twin
    moment = Trained(
        world_first(state.weights),
        Adam(world_first(adam.first), world_first(adam.second), adam.host_updates, adam.slot_updates.T),
        world_first(twin),
        state.step,
        slots.alpha.T,
    )
    mixture = mix(slots, present_alpha(slots).T.unsqueeze(-1), (slots.stage == Stage.TRAINING).T.float(), tables)
    lesson = Lesson(state.level, state.noise, chance)
    trained = train(moment, mixture, active.T.float(), task, lesson, rules)
    adam = trained.adam
    return state._replace(
        weights=world_last(trained.weights),
        adam=Adam(world_last(adam.first), world_last(adam.second), adam.host_updates, adam.slot_updates.T.contiguous()),
        twin=world_last(trained.twin),
        slots=examined(slots, trained.host_norm, trained.slot_norm.T, active, state.weights, rules),
    )


def mix(slots: Slots, alpha: Tensor, training: Tensor | None, tables: Tables) -> Mixture:
    """Return how modules join their hosts, with alpha [N, S, G] and isolated ones ``training`` [N, S]."""
    blueprint, operator = slots.blueprint.T, slots.operator.T
    kind = tables.kind[blueprint]
    multiplies = (operator == MULTIPLY) | (kind == KINDS.index("scale"))
    rank, taps = tables.rank[blueprint], tables.taps[blueprint]
    return Mixture(alpha, training, kind, multiplies, operator == GATE, rank, taps)


def present_alpha(slots: Slots) -> Tensor:
    """Return alpha of the slots whose module joins its host, 0 elsewhere, [S, N]."""
    return torch.where(any_of(slots.stage, *Stage.JOINED), slots.alpha, 0.0)


def examined(slots: Slots, host_norm: Tensor, norm: Tensor, active: Tensor, weights: Weights, rules: Rules) -> Slots:
    """Judge the last gradients of the active modules: norms of hosts [N] and modules [S, N]."""
    finite = torch.isfinite(norm)
    size = torch.where(finite, norm, 0.0)
    health = torch.where(size < VANISHING, 0.5, torch.where(size > EXPLODING * rules.clip, 0.2, 1.0))
    health = torch.where(finite, health, 0.0)
    parameters = sum(value[0, ..., 0].numel() for value in weights.modules)
    scale = (host_size(weights.host) / parameters) ** 0.5
    ratio = (size / host_norm.nan_to_num(0.0, 0.0, 0.0).clamp_min(1e-6) * scale).clamp_max(10.0)
    ratio = torch.where(slots.ratio < 0, ratio, slots.ratio + RATIO_SHARE * (ratio - slots.ratio))
    judged = slots._replace(norm=size, health=health, previous_health=slots.health, ratio=ratio)
    return choose(active, judged, slots)


def evaluate(state: State, task: Task, rules: Rules, tables: Tables) -> tuple[State, Tensor]:
    """Measure all configurations of each network on the validation rows; return the loss of the present one, too."""
    slots, rows = state.slots, len(task.inputs) - POOL
    index = torch.arange(POOL, POOL + rows, device=state.step.device).repeat(len(state.step), 1)
    data = rows_at(task, index, state.level, state.noise)
    weights = world_first(state.weights)
    permanent = (slots.stage == Stage.PERMANENT).T.float()
    alpha = configurations(present_alpha(slots).T, permanent)
    logits = forward(weights, data.inputs, mix(slots, alpha, None, tables), rules)
    twin = accuracy(host_forward(world_first(state.twin.host), data.inputs, rules), data.labels)[:, 0]
    present = cross_entropy(logits[:, :1], data.labels)[:, 0]
    return _measured(state, accuracy(logits, data.labels), twin, present), present


def _measured(state: State, scores: Tensor, twin: Tensor, loss: Tensor) -> State:
    """Write down accuracies [N, S + 3] by configuration, the twin's [N] and the loss [N]."""
    slots, last = state.slots, state.measures
    count = len(slots.stage)
    present = scores[:, 0]
    joined = any_of(slots.stage, *Stage.JOINED)
    contribution = torch.where(joined, (present.unsqueeze(1) - scores[:, 1 : count + 1]).T, 0.0)
    change = torch.where(slots.measured >= 0, contribution - slots.contribution, 0.0)
    velocity = slots.velocity + VELOCITY_SHARE * (change - slots.velocity)
    loss = loss.nan_to_num(LARGEST_LOSS, LARGEST_LOSS).clamp_max(LARGEST_LOSS)
    measures = last._replace(
        loss=loss,
        accuracy=present,
        bare=scores[:, count + 1],
        committed=scores[:, count + 2],
        twin=twin,
        losses=torch.cat((last.losses[1:], loss.unsqueeze(0))),
        accuracies=torch.cat((last.accuracies[1:], present.unsqueeze(0))),
    )
    slots = slots._replace(
        contribution=contribution,
        velocity=torch.where(joined, velocity, 0.0),
        measured=torch.where(joined, 0.0, slots.measured),
    )
    return state._replace(measures=measures, slots=slots)


GUESSING_SHARE, GUESSING_WIDTH = 0.6, 0.065
"""A host guesses at random if its loss is within this fraction of the guess's, and was below that one before."""
ABSOLUTE, DEVIATIONS, MULTIPLE = 5.0, 6.0, 3.0
"""A loss diverges above all three: multiples of the random guess's, standard deviations above the mean, and multiples
of the mean of the host's own history.
"""
PATIENCE = 2
"""Number of divergent checks in a row that roll a host back."""


def panics(loss: Tensor, guard: Guard, guess: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hosts to roll back and those whose loss is anomalous, bool [N] each; ``guess`` is the loss of a random
    guess.
    """
    full = guard.count >= len(guard.losses)
    mean = guard.losses.mean(0)
    deviation = torch.sqrt((guard.losses - mean).square().mean(0))
    broken = ~torch.isfinite(loss)
    guessing = full & (mean < GUESSING_SHARE * guess) & ((loss - guess).abs() < GUESSING_WIDTH * guess)
    diverged = full & (loss > ABSOLUTE * guess) & (loss > mean + DEVIATIONS * deviation) & (loss > MULTIPLE * mean)
    lasting = diverged & (guard.streak >= PATIENCE - 1)
    return broken | guessing | lasting, broken | guessing | diverged


def govern(state: State, loss: Tensor, kept: Tensor, rules: Rules, tables: Tables) -> State:
    """Check every host; roll back those that are damaged, and take snapshots of healthy ones.

    Args:
        state: the state after training.
        loss: loss of the present configuration, [N].
        kept: slots that became permanent in this step, bool [S, N].
        rules: rules of the world.
        tables: constants of the world.
    """
    guard = state.guard
    panic, anomalous = panics(loss, guard, tables.guess)
    panic = panic & rules.governor
    healthy = ~anomalous
    losses = torch.where(healthy, torch.cat((guard.losses[1:], loss.unsqueeze(0))), guard.losses)
    due = healthy & ((torch.remainder(state.step, rules.snapshot_every) == 0) | kept.any(0))
    guard = guard._replace(
        losses=losses,
        count=guard.count + healthy,
        streak=torch.where(healthy, 0.0, guard.streak + 1),
        saved=choose(due, state.weights, guard.saved),
        saved_permanent=torch.where(due, state.slots.stage == Stage.PERMANENT, guard.saved_permanent),
        panics=panic,
    )
    return choose(panic, rolled_back(state._replace(guard=guard)), state._replace(guard=guard))


def rolled_back(state: State) -> State:
    """Return the hosts and permanent modules of the last snapshot, with live modules pruned and moments cleared."""
    slots, saved = state.slots, state.guard.saved
    live = any_of(slots.stage, *Stage.LIVE)
    known = (slots.stage == Stage.PERMANENT) & state.guard.saved_permanent
    pairs = zip(saved.modules, state.weights.modules, strict=True)
    modules = Modules(*(_where(known, old, _finite(new)) for old, new in pairs))
    zeros = map_record(torch.zeros_like, state.weights)
    adam = Adam(zeros, zeros, torch.zeros_like(state.step), torch.zeros_like(slots.alpha))
    return state._replace(weights=Weights(saved.host, modules), adam=adam, slots=prune(slots, live))


def _where(slots: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Select by slots [S, N] in weights [S, ..., N]."""
    return torch.where(slots.view(len(slots), *[1] * (new.ndim - 2), -1), new, old)


def _finite(value: Tensor) -> Tensor:
    return torch.nan_to_num(value, 0.0, 0.0, 0.0)
