"""The recipes of docs/howto/clusters.md: what launchers would start is started here."""

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "howto" / "clusters.md").read_text()
sys.path.insert(0, str(ROOT / "tests/torchrl_agent"))
from launching import QUICK, environment, free_port  # noqa: E402

SMALL = ("smoke", *QUICK, "total_frames=512")


def block(name):
    """The page's block that is saved under a name."""
    (found,) = (code for _, code in re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL) if f"# {name}\n" in code)
    return found


def on_path(folder, **scripts):
    """An environment whose commands are these, Python's of here, and what finds the packages."""
    python = shlex.quote(sys.executable)
    scripts["torchrun"] = f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n'
    scripts["torchrl-agent"] = f'#!/bin/sh\nexec {python} -m torchrl_agent "$@"\n'
    (folder / "bin").mkdir()
    for name, text in scripts.items():
        path = folder / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    own = environment()
    return {**own, "PATH": f"{folder / 'bin'}{os.pathsep}{own['PATH']}"}


def small(command):
    """A command that trains the Arena, in seconds."""
    assert " train arena " in command
    return command.replace(" train arena ", f" train {' '.join(SMALL)} ")


def slurm_script():
    return small(block("slurm.sh")).replace(":29400", f":{free_port()}")


def manifest():
    """The service and the job."""
    return list(yaml.safe_load_all(block("job.yaml")))


def test_the_slurm_script_is_a_script(tmp_path):
    (tmp_path / "slurm.sh").write_text(block("slurm.sh"))
    subprocess.run(["bash", "-n", "slurm.sh"], cwd=tmp_path, check=True)
    assert block("slurm.sh").startswith("#!/bin/bash\n"), "which sbatch demands"


def test_the_jobs_parts_know_each_other():
    service, job = manifest()
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(given["NODES"])
    assert int(given["GPUS"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    # a pod of an indexed job is called after the job and its number, and found under the service's name
    assert given["MEET"] == f"{job['metadata']['name']}-0.{pod['subdomain']}:29400"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}


@pytest.mark.slow
def test_the_slurm_script_trains(tmp_path):
    """One node of two processes, with stand-ins for SLURM's commands."""
    (tmp_path / "slurm.sh").write_text(slurm_script())
    place = on_path(tmp_path, srun='#!/bin/sh\nexec "$@"\n', scontrol="#!/bin/sh\necho localhost\n")
    given = {"SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7"}
    line = ["bash", "slurm.sh", "total_frames=1024"]
    done = subprocess.run(
        line, cwd=tmp_path, env={**place, **given}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/big/checkpoints/checkpoint_1024.pt").is_file()


@pytest.mark.slow
def test_two_pods_train_together(tmp_path):
    _, job = manifest()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    given |= {"GPUS": "1", "MEET": f"localhost:{free_port()}"}
    line = [*container["command"], small(container["args"][0].replace("=/runs", "=runs"))]
    place = {**on_path(tmp_path), **given}
    pods = [
        subprocess.Popen(line, cwd=tmp_path, env={**place, "JOB_COMPLETION_INDEX": str(pod)}, stderr=subprocess.PIPE)
        for pod in range(2)
    ]
    try:
        said = [pod.communicate(timeout=300)[1].decode() for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
    # two trainings would have been in each other's way in one folder
    assert [pod.returncode for pod in pods] == [0, 0], said
    assert (tmp_path / "runs/big/checkpoints/checkpoint_512.pt").is_file()


@pytest.mark.slow
def test_torchrun_takes_what_a_pytorchjob_tells(tmp_path):
    command = small(re.findall(r"`(torchrun --no-python [^`]*)`", PAGE)[0].replace("=/runs", "=runs"))
    given = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "a"}
    given["PET_RDZV_ENDPOINT"] = f"localhost:{free_port()}"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={**on_path(tmp_path), **given},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/big/summary.json").is_file()


@pytest.mark.slow
def test_ray_collects(tmp_path):
    pytest.importorskip("ray")
    line = [sys.executable, str(ROOT / "examples" / "ray_collect.py")]
    place = environment()
    place["PYTHONPATH"] += os.pathsep + str(tmp_path)
    done = subprocess.run(line, cwd=tmp_path, env=place, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\d+) frames, \d+ episodes ended$", done.stdout, re.MULTILINE) == ["512"] * 8
