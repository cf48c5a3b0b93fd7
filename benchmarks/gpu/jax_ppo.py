"""PureJaxRL's design in CartPole: rollouts, advantages and updates of PPO in one compiled ``lax.scan``.

Written anew after ``ppo.py`` of luchris429/purejaxrl (Lu et al. 2022), with the sizes and hyperparameters of our row.
Prints its figures as JSON; needs JAX and Optax alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

UPDATES = 8
"""Iterations of one compiled scan."""
HIDDEN, LEARNING_RATE, ENTROPY = 64, 1e-3, 0.01
GAMMA, TRACE, CLIP, VALUE, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.5
MARK, MAX_STEPS = 475, 500
Parameters = dict[str, list[tuple[jax.Array, jax.Array]]]


class World(NamedTuple):
    """A batch of CartPole-v1."""

    body: jax.Array
    """Position, speed, angle and spin, [4, N], which the agent sees."""
    step: jax.Array
    """Steps of the running episodes, [N]."""


class Frame(NamedTuple):
    """A step of all worlds, [N] each, the observation [N, 4]; of a rollout [T, N]."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    done: jax.Array
    length: jax.Array
    """Length of the episodes that ended, which is their return; 0 for the others."""


def fresh(key: jax.Array, num_envs: int) -> World:
    """Return worlds at the beginning of an episode."""
    return World(jax.random.uniform(key, (4, num_envs), minval=-0.05, maxval=0.05), jnp.zeros(num_envs))


def advance(world: World, action: jax.Array, key: jax.Array) -> tuple[World, jax.Array]:
    """Take one step in all worlds, those that end begin anew; returns worlds and which have ended [N]."""
    (position, speed, angle, spin), step = world.body, world.step + 1
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    push = (10.0 * (2 * action - 1) + 0.05 * spin**2 * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    pull = push - 0.05 * turn * cosine / 1.1
    body = jnp.stack([position + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn])
    done = (jnp.abs(body[0]) > 2.4) | (jnp.abs(body[2]) > math.radians(12)) | (step >= MAX_STEPS)
    begun = fresh(key, len(step))
    return jax.tree.map(lambda new, old: jnp.where(done, new, old), begun, World(body, step)), done


def networks(key: jax.Array) -> Parameters:
    """Return the weights of actor and critic: two hidden layers, orthogonal."""
    parameters = {}
    for name, outputs, last in (("actor", 2, 0.01), ("critic", 1, 1.0)):
        key, *keys = jax.random.split(key, 4)
        shapes = ((4, HIDDEN, math.sqrt(2)), (HIDDEN, HIDDEN, math.sqrt(2)), (HIDDEN, outputs, last))
        parameters[name] = [
            (jax.nn.initializers.orthogonal(gain)(each, (inputs, size)), jnp.zeros(size))
            for each, (inputs, size, gain) in zip(keys, shapes, strict=True)
        ]
    return parameters


def forward(parameters: Parameters, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log-probabilities of the actions [..., 2] and values [...]."""
    outputs = []
    for layers in (parameters["actor"], parameters["critic"]):
        x = observation
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        outputs.append(x @ layers[-1][0] + layers[-1][1])
    return jax.nn.log_softmax(outputs[0]), outputs[1][..., 0]


def chosen(log_probs: jax.Array, action: jax.Array) -> jax.Array:
    """Return the log-probabilities of actions."""
    return jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]


def advantages(frames: Frame, last: jax.Array) -> jax.Array:
    """Return generalized advantage estimates [T, N] (Schulman et al. 2016), given values after the last step [N]."""

    def back(later: tuple[jax.Array, jax.Array], frame: Frame) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        advantage, value = later
        goes_on = 1.0 - frame.done
        error = 1.0 + GAMMA * goes_on * value - frame.value
        advantage = error + GAMMA * TRACE * goes_on * advantage
        return (advantage, frame.value), advantage

    return lax.scan(back, (jnp.zeros_like(last), last), frames, reverse=True, unroll=16)[1]


def loss(parameters: Parameters, batch: tuple[Frame, jax.Array, jax.Array]) -> jax.Array:
    """Return PPO's clipped loss (Schulman et al. 2017)."""
    frames, advantage, target = batch
    log_probs, value = forward(parameters, frames.observation)
    near = frames.value + jnp.clip(value - frames.value, -CLIP, CLIP)
    error = jnp.maximum((value - target) ** 2, (near - target) ** 2).mean() / 2
    gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = jnp.exp(chosen(log_probs, frames.action) - frames.log_prob)
    surrogate = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return VALUE * error - surrogate - ENTROPY * entropy


def training(num_envs: int, steps: int, minibatches: int) -> tuple[Callable[[jax.Array], Any], Any]:
    """Return a function that makes a learner's state of a key, and one that does ``UPDATES`` iterations with it and
    returns the next state, and the sums of returns and the numbers of episodes by iteration.
    """
    adam = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(LEARNING_RATE, eps=1e-5))

    def begin(key: jax.Array) -> Any:
        parameters = networks(key)
        return parameters, adam.init(parameters), fresh(key, num_envs), key

    def play(state: Any, _: None) -> tuple[Any, Frame]:
        parameters, moments, world, key = state
        key, of_action, of_world = jax.random.split(key, 3)
        log_probs, value = forward(parameters, world.body.T)
        action = jax.random.categorical(of_action, log_probs)
        following, done = advance(world, action, of_world)
        length = jnp.where(done, world.step + 1, 0.0)
        frame = Frame(world.body.T, action, chosen(log_probs, action), value, done, length)
        return (parameters, moments, following, key), frame

    def step(learner: Any, batch: Any) -> tuple[Any, None]:
        parameters, moments = learner
        changes, moments = adam.update(jax.grad(loss)(parameters, batch), moments, parameters)
        return (optax.apply_updates(parameters, changes), moments), None

    def iterate(state: Any, _: None) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        (parameters, moments, world, key), frames = lax.scan(play, state, None, steps)
        advantage = advantages(frames, forward(parameters, world.body.T)[1])
        key, of_order = jax.random.split(key)
        order = jax.random.permutation(of_order, num_envs * steps).reshape(minibatches, -1)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], (frames, advantage, advantage + frames.value))
        (parameters, moments), _ = lax.scan(step, (parameters, moments), rows)
        return (parameters, moments, world, key), (frames.length.sum(), frames.done.sum())

    return jax.jit(begin), jax.jit(lambda state: lax.scan(iterate, state, None, UPDATES))


def main() -> None:
    """Compile, wait for the card, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, required=True, help="number of worlds")
    parser.add_argument("--steps", type=int, required=True, help="steps of a rollout")
    parser.add_argument("--minibatches", type=int, required=True, help="minibatches of an iteration")
    parser.add_argument("--begun", type=float, required=True, help="time at which the process was started")
    parser.add_argument("--lock", required=True, help="file to lock while it measures")
    parser.add_argument("--seconds", type=float, required=True, help="least seconds of the measurement")
    given = parser.parse_args()
    begin, iterate = training(given.num_envs, given.steps, given.minibatches)
    first = begin(jax.random.PRNGKey(0))
    begun = time.perf_counter()
    iterate = iterate.lower(first).compile()
    compiled = time.perf_counter() - begun
    jax.block_until_ready(iterate(first))
    found = {"first_update_s": time.time() - given.begun, "compile_s": compiled}
    print(json.dumps({"mode": f"JAX {jax.__version__} {jax.default_backend()}", **found}), flush=True)
    with open(given.lock, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(json.dumps(speed(iterate, first, given)), flush=True)


def speed(iterate: Callable[[Any], Any], state: Any, given: argparse.Namespace) -> dict[str, Any]:
    """Return the speed in frames per second, and frames and seconds until the mean return was reached."""
    each, mark, calls, begun = given.num_envs * given.steps, None, 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - begun < given.seconds:
        state, figures = jax.block_until_ready(iterate(state))
        returns, episodes = (part.tolist() for part in figures)
        reached = [total >= MARK * count > 0 for total, count in zip(returns, episodes, strict=True)]
        if mark is None and any(reached):
            mark = each * (UPDATES * calls + reached.index(True) + 1)
        calls += 1
    rate = each * UPDATES * calls / (time.perf_counter() - begun)
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    found = {"loop_fps": round(rate), "mark": MARK, "mark_frames": mark}
    return {**found, "mark_s": mark and mark / rate, "peak_memory_mb": memory and round(memory / 2**20)}


if __name__ == "__main__":
    main()
