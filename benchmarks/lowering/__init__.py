"""Lowering of a function by Inductor for an NVIDIA H100, down to machine code, without having one.

Dynamo and AOT Autograd trace the function on the CPU; the graphs are then moved to ``cuda:0`` on fake tensors and
lowered, and every Triton kernel is compiled for sm_90 by the assembler that ships with Triton. Any build of PyTorch
works, including the CPU build. The result is counted, not timed: launches, bytes, registers, spills.
"""

from __future__ import annotations

import contextlib
import copy
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.lowering.pretended_gpu import GPU, pretended_h100, require_triton

SECTOR = 32
"""Least number of bytes that a GPU reads or writes at an address."""


@dataclass
class Lowered:
    """One graph as it would run on the GPU. Repeated parts count each time."""

    code: str
    """Inductor's Python code, kernels included."""
    bytes: int
    """Bytes read from and written to the GPU's memory by all kernels, as if no cache kept anything between them."""
    flops: int
    """Operations of matrix products and convolutions; a multiplication with its addition counts twice."""
    waits: int
    """Number of values that the host reads from the device."""
    repeats: dict[str, int] = field(default_factory=dict)
    """Number of calls by the host of functions that appear in the code once, by name: steps of loops over time (scans),
    and regions that are compiled once (``torch.compiler.nested_compile_region``).
    """
    largest: list[tuple[str, int]] = field(default_factory=list)
    """The kernels that move the most bytes, named by the buffers that they write, with their bytes."""
    tracing: float = 0.0
    """Processor seconds until the graph was there; what they share stands with the first of several graphs."""
    generating: float = 0.0
    """Processor seconds from the graph to the code."""

    @property
    def kernels(self) -> dict[str, str]:
        """Sources of the Triton kernels, by name."""
        pattern = r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str='cuda'\)"
        return {name: source.replace("\\'", "'") for name, source in re.findall(pattern, self.code, re.DOTALL)}

    @property
    def launches(self) -> int:
        """Number of kernels launched by one call, including those of libraries."""
        return sum(self._started().values())

    @property
    def operations(self) -> int:
        """Number of elementwise operations of the Triton kernels: lines of their sources that compute, for every
        element that they run over. What is computed anew for each element of a reduction counts as often.
        """
        started = self._started()
        return sum(started[f"{name}.run("] * _operations(source) for name, source in self.kernels.items())

    def _started(self) -> Counter[str]:
        """Return the kernels that one call launches, by the words that launch them."""
        _, *parts = re.split(r"^(?:def|class) (\w+)", "class before\n" + self.code, flags=re.MULTILINE)
        launch = r"\w+\.run\(|extern_kernels\.\w+\(|torch\.ops\.aten\.\w+\.\w+\("
        total: Counter[str] = Counter()
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            for words in re.findall(launch, body):
                total[words] += self.repeats.get(name, 1)
        return total


_SIZE = re.compile(r"\s*(x|y|z|r\d_)numel = (\d+)$")
_VALUE = re.compile(r"\s*(tmp\d+) = (.+)$")
_FREE = re.compile(r"tl\.(load|full|broadcast_to)\(|tmp\d+(\.to\(.*\))?$|-?[\d.]+$|float\(")
"""Values that are no arithmetic, or that the hardware makes in passing."""


def _operations(source: str) -> int:
    """Return the operations of a Triton kernel: what differs along a reduction is computed for all elements, the rest
    for the results alone. In combined kernels each part begins with its own sizes.
    """
    total, sizes, header = 0, dict[str, int](), False
    reduced_over: set[str] = set()  # values that differ along a reduction
    for line in source.splitlines():
        if size := _SIZE.match(line):
            sizes = {**(sizes if header else {}), size[1]: int(size[2])}
            header = True
        elif value := _VALUE.match(line):
            header = False
            name, expression = value.groups()
            wide = "r0_" in expression or not reduced_over.isdisjoint(re.findall(r"tmp\d+", expression))
            reduced = "[:, None]" in expression  # it looks at every element, and has a value for each result
            (reduced_over.add if wide and not reduced else reduced_over.discard)(name)
            if not _FREE.match(expression):
                total += math.prod(size for axis, size in sizes.items() if wide or not axis.startswith("r"))
    return total


class _EnoughError(Exception):
    """The code is generated, and need not be loaded."""


def lower(function: Callable, *args: Any, options: dict[str, Any] | None = None) -> dict[str, Lowered]:
    """Lower a function of CPU tensors to graphs: ``inference``, or ``forward`` and ``backward`` if it needs gradients.

    Args:
        function: function that ``torch.compile`` can capture without graph breaks.
        *args: its arguments, on the CPU.
        options: options of Inductor, as for ``torch.compile``.

    Raises:
        ValueError: there is no Triton.
    """
    require_triton()
    start = time.process_time()
    graphs = _trace(function, args)
    tracing = time.process_time() - start
    with pretended_h100():
        result = {kind: _lower(*_on_gpu(*graph), kind, options or {}) for kind, graph in graphs.items()}
    next(iter(result.values())).tracing = tracing
    return result


def _trace(function: Callable, args: tuple) -> dict[str, tuple]:
    """Return ATen graphs with example inputs, after the device-independent passes of Inductor; they are not run."""
    import torch._functorch.config
    import torch._inductor.config
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    graphs: dict[str, tuple] = {}

    def stop(*_: Any) -> None:
        raise _EnoughError

    def keep(kind: str) -> Callable:
        def compiler(graph: torch.fx.GraphModule, inputs: list) -> Callable:
            graphs[kind] = (copy.deepcopy(graph), inputs)
            if kind == "inference":
                joint_graph_passes(graphs[kind][0])
            return stop

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
        keep_inference_input_mutations=True,  # as in Inductor: in-place writes are done by the kernels
    )
    torch._dynamo.reset()
    # random numbers by their own kernels: Inductor's seeds cannot be propagated where PyTorch has no CUDA
    eager_random = torch._inductor.config.patch(fallback_random=True)
    not_lazy = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with not_lazy, eager_random, contextlib.suppress(_EnoughError):
        if isinstance(function, torch.fx.GraphModule):
            backend(function, args)(*args)
        torch.compile(function, backend=backend, fullgraph=True, dynamic=False)(*args)
    return graphs


def _on_gpu(graph: torch.fx.GraphModule, inputs: list) -> tuple[torch.fx.GraphModule, list, Any]:
    """Return a graph of fake tensors on the GPU, its inputs, and their mode."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    # a loop over time reads its step, on the host, which needs a shape environment
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)

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
            node.meta.pop("unbacked_bindings", None)  # known to the mode that traced
            node.meta.pop("eager_input_vals", None)  # on the CPU
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

    result: list[Lowered] = []
    flops, start = _flops(graph), time.process_time()

    def stop(lowering: GraphLowering) -> None:
        code, seconds = lowering.codegen()[0].value, time.process_time() - start
        result.append(_counted(code, flops, lowering))
        result[0].generating = seconds
        raise _EnoughError

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", stop))
        stack.enter_context(tracing(TracingContext(mode)))
        stack.enter_context(torch._inductor.config.patch({**options, "fx_graph_cache": False, "fallback_random": True}))
        try:
            compile_fx_inner(graph, inputs, is_inference=kind == "inference", is_backward=kind == "backward")
        except Exception:
            if not result:
                raise
    return result[0]


def _counted(code: str, flops: int, lowering: Any) -> Lowered:
    """Count the bytes that the kernels of a graph, and of its repeated parts, move, and the waits of the host."""
    from torch._inductor.virtualized import V

    moved: Counter[str] = Counter()
    waits, repeats = 0, Counter[str]()
    for graph, times in _parts(lowering):
        with V.set_graph_handler(graph):
            for node in graph.scheduler.nodes:
                moved[",".join(sorted(node.get_buffer_names()))] += times * _moved(node, graph)
        waits += times * sum(map(_waits, graph.operations))
        if graph is not lowering:
            repeats[graph.name] += times
    return Lowered(code, moved.total(), flops, waits, dict(repeats), moved.most_common(8))


def _parts(graph: Any, times: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield a graph, and every call of a repeated part in it, with the number of times that it runs."""
    from torch._inductor.ir import InvokeSubgraph, WhileLoop

    yield graph, times
    for operation in graph.operations:
        if isinstance(operation, WhileLoop):
            yield from _parts(operation.body_subgraph.graph, times * _steps(operation))
        elif isinstance(operation, InvokeSubgraph):
            yield from _parts(operation.subgraph.graph, times)


def _steps(loop: Any) -> int:
    """Return the number of steps of a loop: a scan's condition is ``step < length``."""
    (less,) = loop.cond_subgraph.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.lt.Scalar)
    return int(less.args[1])


def _waits(operation: Any) -> bool:
    """True if the host waits for a value of the device. A loop's step is on the host."""
    from torch._inductor.ir import DeviceCopy, DynamicScalar

    if isinstance(operation, DynamicScalar):
        return operation.inputs[0].get_device() == GPU
    return isinstance(operation, DeviceCopy) and operation.get_device() != GPU


def _moved(node: Any, graph: Any) -> int:
    """Return the bytes that a kernel reads and writes: each touched element of a buffer once.

    Inductor's own count takes whole buffers in fused kernels. Data-dependent addresses count as a sector each.
    """
    from torch._inductor.dependencies import MemoryDep
    from torch._inductor.ir import InvokeSubgraph, WhileLoop
    from torch._inductor.scheduler import SchedulerNode

    kernels = node.get_nodes()
    if isinstance(node.node, WhileLoop | InvokeSubgraph) or node.get_device() != GPU:
        return 0  # repeated parts are counted themselves; the host's memory is not
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
                continue  # other dependencies only keep an order
            size = int(graph.get_numel(dep.name)) * graph.get_dtype(dep.name).itemsize
            part = math.prod(map(int, dep.size)) * SECTOR if dep.is_indirect() else dep.numbytes_hint()
            touched[dep.name] = min(size, touched.get(dep.name, 0) + part)
        total += sum(touched.values())
    return total


def _flops(graph: torch.fx.GraphModule) -> int:
    """Return the operations of a graph's matrix products, those of a scan's body once for every step."""
    from torch.utils.flop_counter import flop_registry

    total = 0
    for node in graph.graph.nodes:
        formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if formula is not None:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
            total += int(formula(*args, **kwargs, out_val=node.meta.get("val")))
        elif node.target is torch.ops.higher_order.scan:
            body, _, sequences, _ = node.args
            total += len(sequences[0].meta["val"]) * _flops(getattr(graph, body.target))
    return total
