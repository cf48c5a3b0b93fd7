"""Simulated GPU for compilers: Inductor and Triton find an NVIDIA H100, and their kernels are compiled to machine
code, whose registers and spills are counted.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

GPU = torch.device("cuda", 0)
H100 = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    total_memory=80 << 30,
    L2_cache_size=50 << 20,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    clock_rate=1980000,
    memory_clock_rate=2619000,
    memory_bus_width=5120,
    is_integrated=0,
    gcnArchName="sm_90",
)
"""Properties of the device that Inductor reads."""


def require_triton() -> None:
    """Check that Triton is installed.

    Raises:
        ValueError: there is no Triton.
    """
    if importlib.util.find_spec("triton") is None:
        raise ValueError("code for a GPU needs Triton, which is not installed: pip install triton==3.7.1 (Linux only).")


@dataclass
class MachineCode:
    """Resources of a kernel on the GPU."""

    registers: int
    """Registers per thread, of 255."""
    spilled: int
    """Bytes per thread that are spilled to memory for lack of registers."""
    seconds: float
    """Processor seconds of Triton and the assembler."""


def machine_code(kernels: dict[str, str]) -> dict[str, MachineCode]:
    """Compile Triton kernels for sm_90; errors of Triton or the assembler are raised."""
    require_triton()
    anew = mock.patch.dict(os.environ, TRITON_ALWAYS_COMPILE="1")
    with tempfile.TemporaryDirectory() as folder, pretended_h100(), anew:
        return {name: _compiled(name, source, Path(folder)) for name, source in kernels.items()}


def _compiled(name: str, source: str, folder: Path) -> MachineCode:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = folder / f"{name[:100]}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tuner = getattr(module, name)

    def compiled(config: Any) -> Any:
        meta = tuner._create_compile_meta(config)
        return triton.compile(
            ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0]),
            target=GPUTarget("cuda", 90, 32),
            options=tuner._create_compile_options(config, meta),
        )

    start = sum(os.times()[:4])  # of children too: the assembler is one
    first, *_ = map(compiled, tuner.configs)  # Inductor tries them all, and gives up if one cannot be compiled
    seconds = sum(os.times()[:4]) - start
    ptx = folder / "kernel.ptx"
    ptx.write_text(first.asm["ptx"], encoding="utf-8")
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    command = [tool, "-v", "--gpu-name=sm_90a", ptx, "-o", folder / "kernel.cubin"]
    text = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes spill stores", text)
    assert registers is not None
    assert spilled is not None
    return MachineCode(int(registers[1]), int(spilled[1]), seconds)


Replacement = tuple[Any, str, Any]
"""An object, the name of its attribute, and its temporary value."""


@contextlib.contextmanager
def pretended_h100() -> Iterator[None]:
    """Context in which Inductor and Triton find an H100; code for it must not be run."""
    import triton

    with contextlib.ExitStack() as stack:
        for owner, name, value in (*_runtime(), *_compilers(), *_fake_tensors()):
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        driver = triton.runtime.driver
        stack.callback(setattr, driver, "_active", driver._active)
        driver.set_active(_driver())
        yield


def _runtime() -> Iterator[Replacement]:
    """Yield replacements of functions of PyTorch's CUDA runtime."""
    from torch._dynamo.device_interface import CudaInterface

    answers = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": H100,
        "get_device_capability": (H100.major, H100.minor),
        "get_device_name": H100.name,
        "mem_get_info": (H100.total_memory, H100.total_memory),
        "is_bf16_supported": True,
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "current_stream": types.SimpleNamespace(cuda_stream=0),
        **dict.fromkeys(("_lazy_init", "synchronize", "set_rng_state", "set_device")),
        **dict.fromkeys(("_exchange_device", "_maybe_exchange_device"), 0),
    }
    yield from ((torch.cuda, name, _answer(value)) for name, value in answers.items())
    for name in ("is_available", "device_count", "current_device", "get_device_properties", "synchronize"):
        yield CudaInterface, name, staticmethod(_answer(answers[name]))
    for name in ("get_device_properties", "current_device"):
        yield CudaInterface.Worker, name, staticmethod(_answer(answers[name]))


def _compilers() -> Iterator[Replacement]:
    """Yield replacements of Inductor's queries of Triton."""
    import torch._inductor.compile_fx  # noqa: F401 (who asks must be there to be answered)
    import torch._inductor.runtime.triton_helpers as helpers

    believed = {
        "has_triton": True,
        "has_triton_tma": False,
        "has_triton_tma_device": False,
        "has_triton_stable_tma_api": False,
        "has_triton_tensor_descriptor_host_tma": False,
        "has_triton_experimental_host_tma": False,
    }
    for name, value in believed.items():
        yield from _everywhere(name, _answer(value))
    yield helpers, "set_driver_to_gpu", _answer(None)


def _everywhere(name: str, replacement: Callable) -> Iterator[Replacement]:
    """Yield replacements of a function of ``torch.utils._triton``, also where it was imported by name."""
    import torch.utils._triton

    original = getattr(torch.utils._triton, name, None)
    for module in list(sys.modules.values()):
        ours = original is not None and getattr(module, "__name__", "").startswith("torch.")
        if ours and vars(module).get(name) is original:
            yield module, name, replacement


def _fake_tensors() -> Iterator[Replacement]:
    """Yield replacements for fake tensors: passes copy and index to infer shapes, and as methods these need a device's
    runtime, which a CPU build lacks.
    """
    import torch._subclasses.fake_tensor as fake_tensor

    if hasattr(fake_tensor, "init_gpu_context"):
        yield fake_tensor, "init_gpu_context", _answer(None)
    yield fake_tensor.FakeTensor, "copy_", _copy
    yield fake_tensor.FakeTensor, "__getitem__", _get_item


def _copy(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return torch.ops.aten.copy_.default(tensor, source, non_blocking)


def _get_item(tensor: Tensor, index: Any) -> Tensor:
    whole = isinstance(index, int)
    return torch.ops.aten.select.int(tensor, 0, index) if whole else Tensor.__getitem__(tensor, index)


def _driver() -> types.SimpleNamespace:
    """Return the attributes of a driver that Triton reads."""
    from triton.backends.compiler import GPUTarget

    return types.SimpleNamespace(
        get_current_target=_answer(GPUTarget("cuda", 90, 32)),
        get_current_device=_answer(0),
        get_active_torch_device=_answer(GPU),
    )


def _answer(value: Any) -> Callable:
    return lambda *_, **__: value
