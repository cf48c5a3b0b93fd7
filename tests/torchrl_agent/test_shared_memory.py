"""Means by shared memory, here between threads, and what becomes of who waits in vain."""

import errno
import fcntl
import mmap
import os
import resource
import subprocess
import sys
import threading

import pytest
import torch

from torchrl_agent.ranks import shared_memory
from torchrl_agent.ranks.shared_memory import LostError, SharedMean, share_mean, size_of

TURNS = 200
MISSING = "a thread gave nothing"


def in_threads(count, function):
    """What a function of ``exchange`` and a number returns in each of several threads, or the first error of one."""
    given, barrier, results, errors = {}, threading.Barrier(count, timeout=60), [MISSING] * count, []

    def run(number):
        def exchange(value):
            given[number] = value
            barrier.wait()
            everyone = [given[index] for index in range(count)]
            barrier.wait()
            return everyone

        try:
            results[number] = function(exchange, number)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(result is MISSING for result in results), MISSING
    return results


def descriptors():
    """This process's open descriptors of processes and of memory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except FileNotFoundError:  # the folder's own
            continue
    return sorted(each for each in found if "pidfd" in each[1] or "memfd" in each[1])


def refuse(*rest):
    """What a machine answers that has nothing left."""
    raise OSError(errno.EMFILE, "too many open files")


@pytest.fixture
def ended():
    """A ``pidfd`` of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    opened = os.pidfd_open(process.pid)
    process.wait()
    return opened


def alone(process, seconds, length=3):
    """The first of two, whose other one never comes."""
    return SharedMean(mmap.mmap(-1, size_of(2, length)), 0, {1: process}, length, seconds)


@pytest.mark.parametrize("count", [2, 3])
def test_every_turn_has_its_own_mean_in_all(count):
    """Turn t: the mean of 10 t + number, at places of their own."""

    def turns(exchange, number):
        mean = share_mean(exchange, number, 5, 30.0)
        return torch.stack([mean(torch.arange(5.0) + 10 * turn + number) for turn in range(TURNS)])

    expected = torch.arange(5.0) + 10 * torch.arange(TURNS)[:, None] + (count - 1) / 2
    for found in in_threads(count, turns):
        torch.testing.assert_close(found, expected)


def test_a_result_is_not_changed_by_later_turns():
    def two(exchange, number):
        mean = share_mean(exchange, number, 1, 30.0)
        first = mean(torch.ones(1))
        for _ in range(4):
            mean(torch.zeros(1))
        return first.item()

    assert in_threads(2, two) == [1.0, 1.0]


def test_who_waits_for_one_that_left_is_told_but_the_last_turn_counts():
    def last(exchange, number):
        mean = share_mean(exchange, number, 1, 30.0)
        result = mean(torch.full((1,), float(number))).item()
        if number == 1:
            return mean.leave(), result
        with pytest.raises(LostError, match="process 1 has ended"):
            mean(torch.zeros(1))
        return None, result

    assert in_threads(2, last) == [(None, 0.5), (None, 0.5)]


def test_one_that_came_and_left_before_the_other_looked_has_come():
    mine = alone(os.pidfd_open(os.getpid()), 1.0, 1)
    mine._turns[8] = ~1  # its first turn was its last
    assert mine(torch.ones(1)).item() == 0.5


def test_one_that_was_killed_is_noticed_at_once(ended):
    with pytest.raises(LostError, match="process 1 has ended"):
        alone(ended, 2.0)(torch.zeros(3))


def test_one_that_does_not_come_is_not_waited_for_forever():
    with pytest.raises(LostError, match=r"within 0\.1 s"):
        alone(os.pidfd_open(os.getpid()), 0.1)(torch.zeros(3))


def test_processes_of_two_machines_share_nothing(monkeypatch):
    machines = iter(["one", "another"])
    monkeypatch.setattr(shared_memory, "_machine", lambda: next(machines))
    assert in_threads(2, lambda exchange, number: share_mean(exchange, number, 1, 1.0)) == [None, None]


def without(lacking, monkeypatch):
    """Take something away that sharing needs; of two of them, one has it."""
    if lacking == "processor":
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
    elif lacking == "sight":
        opened = shared_memory._open
        monkeypatch.setattr(shared_memory, "_open", lambda *rest: None if rest[-1] == 1 else opened(*rest))
    elif lacking == "third":
        opened, left = os.pidfd_open, iter([True, True, True])
        monkeypatch.setattr(os, "pidfd_open", lambda pid: opened(pid) if next(left, False) else refuse())
    else:
        monkeypatch.setattr(os, lacking, refuse)


@pytest.mark.parametrize("lacking", ["processor", "sight", "third", "pidfd_open", "memfd_create", "ftruncate"])
def test_where_one_cannot_share_nobody_does_and_nothing_stays_open(monkeypatch, lacking):
    without(lacking, monkeypatch)
    before = descriptors()
    found = in_threads(3, lambda exchange, number: share_mean(exchange, number, 1, 1.0))
    assert found == [None, None, None]
    assert descriptors() == before


def test_a_process_is_noticed_by_a_descriptor_of_any_number(ended):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        if 0 <= hard < 2048:
            pytest.skip("this machine allows fewer descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    high, alive = fcntl.fcntl(ended, fcntl.F_DUPFD, 1100), os.pidfd_open(os.getpid())
    assert high >= 1024
    assert shared_memory._ended(high)
    assert not shared_memory._ended(alive)
    os.close(high)
    os.close(alive)


def test_what_fails_in_a_thread_fails_the_test():
    def faulty(exchange, number):
        if number == 1:
            raise ArithmeticError("wrong")
        exchange(number)

    with pytest.raises(ArithmeticError, match="wrong"):
        in_threads(2, faulty)
