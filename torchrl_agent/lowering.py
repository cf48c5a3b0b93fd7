"""What Inductor makes of a function for an NVIDIA H100, down to machine code, without having one.

Dynamo and AOT Autograd trace the function on the CPU; the graphs are then moved to ``cuda:0`` on fake tensors and
lowered, and every Triton kernel is compiled for sm_90 by the assembler that Triton brings along. Any build of PyTorch
does, the CPU build included. What comes out is counted, not timed: launches, bytes, registers, spills.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import math
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
"""What Inductor asks of a device's properties."""


@dataclass
class Lowered:
    """One graph as it would run on the GPU."""

    code: str
    """Inductor's Python code, kernels included."""
    bytes: int
    """Read from and written to the GPU's memory by all kernels, as if no cache kept anything from one to the next."""
    flops: int
    """Operations of matrix products and convolutions; a multiplication with its addition counts twice."""
    largest: list[tuple[str, int]] = field(default_factory=list)
    """The kernels that move most, by the buffers that they write, and their bytes."""

    @property
    def kernels(self) -> dict[str, str]:
        """Sources of the Triton kernels by name."""
        pattern = r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str='cuda'\)"
        return {name: source.replace("\\'", "'") for name, source in re.findall(pattern, self.code, re.DOTALL)}

    @property
    def launches(self) -> int:
        """Kernels started by one call, those of libraries included."""
        return len(re.findall(r"\.run\(|extern_kernels\.\w+\(|torch\.ops\.aten\.\w+\.\w+\(", self.code))

    @property
    def waits(self) -> list[str]:
        """What in the code reads from the device, and so waits for it."""
        return re.findall(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)", self.code)


class _EnoughError(Exception):
    """The code is there; nothing needs to load it."""


def require_triton() -> None:
    """Say what to install where Triton is missing.

    Raises:
        ValueError: there is no Triton.
    """
    if importlib.util.find_spec("triton") is None:
        raise ValueError("code for a GPU needs Triton, which is not installed: pip install triton==3.7.1 (Linux only).")


def lower(function: Callable, *args: Any, options: dict[str, Any] | None = None) -> dict[str, Lowered]:
    """The graphs of a function of CPU tensors: ``inference``, or ``forward`` and ``backward`` if it needs gradients.

    Args:
        function: what ``torch.compile`` could take whole.
        *args: its arguments, on the CPU.
        options: of Inductor, as ``torch.compile`` takes them.

    Raises:
        ValueError: there is no Triton.
    """
    require_triton()
    graphs = _trace(function, args)
    with pretended_h100():
        return {kind: _lower(*_on_gpu(*graph), kind, options or {}) for kind, graph in graphs.items()}


def _trace(function: Callable, args: tuple) -> dict[str, tuple]:
    """ATen graphs with example inputs, after the passes that Inductor runs before it knows a device."""
    import torch._functorch.config
    import torch._inductor.config
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    graphs: dict[str, tuple] = {}

    def keep(kind: str) -> Callable:
        def compiler(graph: torch.fx.GraphModule, inputs: list) -> torch.fx.GraphModule:
            graphs[kind] = (copy.deepcopy(graph), inputs)
            if kind == "inference":
                joint_graph_passes(graphs[kind][0])
            return graph

        return compiler

    def partition(graph: torch.fx.GraphModule, inputs: list, **rest: Any) -> Any:
        joint_graph_passes(graph)
        return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **rest)

    backend = aot_autograd(
        fw_compiler=keep("forward"),
        bw_compiler=keep("backward"),
        inference_compiler=keep("inference"),
        decompositions=select_decomp_table(),
        partition_fn=partition,
    )
    torch._dynamo.reset()
    # random numbers by their own kernels: Inductor's seeds cannot be propagated where PyTorch has no CUDA
    eager_random = torch._inductor.config.patch(fallback_random=True)
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True), eager_random:
        torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args)
    return graphs


def _on_gpu(graph: torch.fx.GraphModule, inputs: list) -> tuple[torch.fx.GraphModule, list, Any]:
    """A graph of fake tensors on the GPU, its inputs, and their mode."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def swap(value: Any) -> Any:
        return GPU if isinstance(value, torch.device) and value.type == "cpu" else value

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=GPU)

    for module in graph.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            node.args = torch.fx.node.map_aggregate(node.args, swap)
            node.kwargs = torch.fx.node.map_aggregate(node.kwargs, swap)
            with mode:
                if module is not graph and "val" in node.meta:  # of a scan's body, which is not propagated
                    node.meta["val"] = torch.fx.node.map_aggregate(node.meta["val"], fake)
                if node.op == "get_attr" and isinstance(getattr(module, node.target), Tensor):
                    setattr(module, node.target, fake(getattr(module, node.target)))
        module.recompile()
    with mode:
        inputs = [fake(value) for value in inputs]
    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*inputs)
    return graph, inputs, mode


def _lower(graph: torch.fx.GraphModule, inputs: list, mode: Any, kind: str, options: dict[str, Any]) -> Lowered:
    import torch._inductor.config
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.graph import GraphLowering

    found: list[Lowered] = []
    flops = sum(_flops(node) for node in graph.graph.nodes)

    def stop(lowering: GraphLowering) -> None:
        code = lowering.codegen()[0].value
        moved = {",".join(sorted(node.get_buffer_names())): _moved(node, lowering) for node in lowering.scheduler.nodes}
        largest = sorted(moved.items(), key=lambda item: -item[1])[:8]
        found.append(Lowered(code, sum(moved.values()), flops, largest))
        raise _EnoughError

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", stop))
        stack.enter_context(tracing(TracingContext(mode)))
        stack.enter_context(torch._inductor.config.patch({**options, "fx_graph_cache": False, "fallback_random": True}))
        try:
            compile_fx_inner(graph, inputs, is_inference=kind == "inference", is_backward=kind == "backward")
        except Exception:
            if not found:
                raise
    return found[0]


SECTOR = 32
"""Least bytes that a GPU reads or writes at a place."""


def _moved(node: Any, graph: Any) -> int:
    """Bytes that a kernel reads and writes: each element of a buffer once, of which it may touch a slice only.

    Inductor's own count takes whole buffers in fused kernels. Places that only the data know count as a sector each.
    """
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.scheduler import SchedulerNode

    kernels = node.get_nodes()
    if not all(isinstance(each, SchedulerNode) for each in kernels):
        return node.get_read_write_buffers_sizes()
    inside = {
        name
        for name in (dep.name for dep in node.read_writes.writes)
        if all(user.node in kernels for user in graph.scheduler.name_to_buf[name].users)
    }
    total = 0
    for deps in (node.read_writes.reads, node.read_writes.writes):
        touched: dict[str, int] = {}
        for dep in deps:
            if dep.name in inside or dep.name in graph.removed_buffers or not isinstance(dep, MemoryDep):
                continue  # what is no memory access only keeps an order
            size = int(graph.get_numel(dep.name)) * graph.get_dtype(dep.name).itemsize
            part = math.prod(map(int, dep.size)) * SECTOR if dep.is_indirect() else dep.numbytes_hint()
            touched[dep.name] = min(size, touched.get(dep.name, 0) + part)
        total += sum(touched.values())
    return total


def _flops(node: torch.fx.Node) -> int:
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if formula is None:
        return 0
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
    return int(formula(*args, **kwargs, out_val=node.meta.get("val")))


@dataclass
class MachineCode:
    """What a kernel takes on the GPU."""

    registers: int
    """Per thread, of 255."""
    spilled: int
    """Bytes per thread that are written to memory for want of registers."""


def machine_code(kernels: dict[str, str]) -> dict[str, MachineCode]:
    """Triton kernels compiled for sm_90; raises what Triton or the assembler raises."""
    require_triton()
    with tempfile.TemporaryDirectory() as folder, pretended_h100():
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
    meta = tuner._create_compile_meta(tuner.configs[0])
    binary = triton.compile(
        ASTSource(tuner.fn, meta["signature"], meta["constants"], meta["configs"][0]),
        target=GPUTarget("cuda", 90, 32),
        options=tuner._create_compile_options(tuner.configs[0], meta),
    )
    ptx = folder / "kernel.ptx"
    ptx.write_text(binary.asm["ptx"], encoding="utf-8")
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    command = [tool, "-v", "--gpu-name=sm_90a", ptx, "-o", folder / "kernel.cubin"]
    text = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", text), re.search(r"(\d+) bytes spill stores", text)
    assert registers is not None
    assert spilled is not None
    return MachineCode(int(registers[1]), int(spilled[1]))


@contextlib.contextmanager
def pretended_h100() -> Iterator[None]:
    """Inductor and Triton believe that there is one; what they would run on it must not be run."""
    import torch._inductor.compile_fx
    import torch._inductor.runtime.triton_helpers as helpers
    import torch._subclasses.fake_tensor as fake_tensor
    import torch.utils._triton
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from triton.backends.compiler import GPUTarget

    def answer(value: Any) -> Callable:
        return lambda *_, **__: value

    cuda = {
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
    interface = ("is_available", "device_count", "current_device", "get_device_properties", "synchronize")
    tensor_memory = (
        "has_triton_tma",
        "has_triton_tma_device",
        "has_triton_stable_tma_api",
        "has_triton_tensor_descriptor_host_tma",
        "has_triton_experimental_host_tma",
    )
    driver = types.SimpleNamespace(
        get_current_target=answer(GPUTarget("cuda", 90, 32)),
        get_current_device=answer(0),
        get_active_torch_device=answer(GPU),
    )
    active = triton.runtime.driver._active
    with contextlib.ExitStack() as stack:
        patch = mock.patch.object
        for name, value in cuda.items():
            stack.enter_context(patch(torch.cuda, name, answer(value), create=True))
        for name in interface:
            stack.enter_context(patch(CudaInterface, name, staticmethod(answer(cuda[name]))))
        for name in ("get_device_properties", "current_device"):
            stack.enter_context(patch(CudaInterface.Worker, name, staticmethod(answer(cuda[name]))))
        _believe(stack, "has_triton", answer(True))
        for name in tensor_memory:
            _believe(stack, name, answer(False))
        stack.enter_context(patch(helpers, "set_driver_to_gpu", answer(None)))
        if hasattr(fake_tensor, "init_gpu_context"):
            stack.enter_context(patch(fake_tensor, "init_gpu_context", answer(None)))
        # passes copy and index to learn shapes; these two methods want a device's runtime, which a CPU build lacks
        stack.enter_context(patch(fake_tensor.FakeTensor, "copy_", lambda tensor, *_, **__: tensor, create=True))
        stack.enter_context(patch(fake_tensor.FakeTensor, "__getitem__", _get_item, create=True))
        triton.runtime.driver.set_active(driver)
        try:
            yield
        finally:
            triton.runtime.driver._active = active


def _get_item(tensor: Tensor, index: Any) -> Tensor:
    whole = isinstance(index, int)
    return torch.ops.aten.select.int(tensor, 0, index) if whole else Tensor.__getitem__(tensor, index)


def _believe(stack: contextlib.ExitStack, name: str, replacement: Callable) -> None:
    """Replace a function of ``torch.utils._triton`` also where it was imported by name."""
    original = getattr(torch.utils._triton, name, None)
    if original is None:
        return
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch.") and vars(module).get(name) is original:
            stack.enter_context(mock.patch.object(module, name, replacement))
