"""A CUDA device that is not there: tensors that say ``cuda:0``, hold their numbers on the CPU, and count what a GPU
would wait for. Needs neither a GPU nor a CUDA build of PyTorch, and runs eager code at a tenth of its speed.

``with PretendCuda() as gpu:`` makes ``device="cuda"`` work:

- a ``cuda`` and a ``cpu`` tensor in one operation fail as on a GPU (0-dimensional CPU tensors may join, as there);
- what makes the host wait is counted by the line that asked for it (``gpu.waits``): ``.item()``, ``bool()``,
  ``.tolist()``, ``nonzero``, boolean indices, copies from and to pageable host memory; and ``torch.cuda.synchronize``
  (``gpu.synchronized``);
- launches are counted (``gpu.launches``), a replayed graph as one;
- ``torch.cuda.graph`` records and replays: recorded operations run again on the same memory, Python does not; a wait, a
  host copy or a compilation while recording is an error; what was recorded holds NaN until its first replay;
- ``torch.compile`` runs the function as it is, and counts how often it would have compiled (``gpu.compilations``).

It does not know: numbers that differ on a GPU, autocast, cuDNN, several devices, streams that overtake each other,
memory of a graph that is used twice within it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

aten = torch.ops.aten
GPU = torch.device("cuda", 0)
HERE = Path(__file__).resolve().parents[1]
"""The project: lines of it are named where the host waits."""
current: PretendCuda | None = None

WAITS = {
    aten._local_scalar_dense.default: "item or bool",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.equal.default: "equal",
    aten._unique2.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave by a tensor",
}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
MAY_MIX = {*INDEXING, aten.copy_.default, aten._to_copy.default, aten.scatter.src}
"""The last since PyTorch 2.11 makes the zeros for a maximum's gradient where C++ believes the gradient to be."""
_to, _save, _load = torch.Tensor.to, torch.save, torch.load
_load_state = torch.nn.Module.load_state_dict
_groups = torch._C._group_tensors_by_device_and_dtype


class CudaTensor(torch.Tensor):
    """To Python it is on ``cuda:0``. To PyTorch's C++ it is a CPU tensor, because autograd would ask a CUDA device for
    its streams; its numbers are in ``on_cpu``.
    """

    on_cpu: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor) -> CudaTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            on_cpu.shape,
            strides=on_cpu.stride(),
            storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
            device="cpu",
        )
        made.on_cpu = on_cpu
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if current is None:
            raise RuntimeError("a pretended CUDA tensor has left its PretendCuda block")
        with current.mode:
            return function(*args, **(kwargs or {}))

    def get_device(self) -> int:
        return 0

    def cuda(self, *args: Any, **kwargs: Any) -> CudaTensor:
        return self

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.to("cpu")

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        rest = {name: kwargs.pop(name) for name in ("copy", "memory_format") if name in kwargs}
        args = tuple(GPU if isinstance(value, CudaTensor) else value for value in args)
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None and device.type == "cpu":
            return current.to_host(self).to(dtype or self.dtype)
        return _to(self, dtype or self.dtype, **rest)

    def tolist(self) -> Any:
        return current.to_host(self).tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy: use Tensor.cpu() first")

    __array__ = numpy

    def data_ptr(self) -> int:
        return self.on_cpu.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.on_cpu.untyped_storage()

    def __deepcopy__(self, memo: dict) -> torch.Tensor:
        if id(self) not in memo:
            copied: torch.Tensor = self.detach().clone()
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied
        return memo[id(self)]

    def __repr__(self) -> str:
        return f"CudaTensor({self.on_cpu!r})"


class Dispatch(TorchDispatchMode):
    """Hands every operation to the device."""

    _mode_key = torch._C._TorchDispatchModeKey.FAKE  # the slot in which PyTorch looks before it starts a driver
    shape_env, static_shapes, allow_non_fake_inputs = None, True, True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return current.operate(function, args, dict(kwargs or {}))


class PretendCuda(contextlib.ExitStack):
    """See above."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter = Counter()
        self.launches = self.synchronized = self.compilations = 0
        self.recording: Recording | None = None
        self.mode = Dispatch()

    def __enter__(self) -> PretendCuda:
        global current
        assert current is None, "one pretended device at a time"
        super().__enter__()
        current = self
        self.callback(_forget)
        for name, value in _cuda_module(self).items():
            self.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        for owner, name, value in (
            (torch, "compile", self._compile),
            (torch, "save", lambda value, *args, **kwargs: _save(_tagged(value), *args, **kwargs)),
            (torch, "load", _loaded),
            (torch.Tensor, "to", _to_the_first),
            (torch.Tensor, "pin_memory", _pinned),
            (torch.nn.functional, "one_hot", _one_hot),
            (torch.nn.RNNBase, "flatten_parameters", lambda self: None),  # by cuDNN, in a build that has it
            (torch.nn.Module, "load_state_dict", _load_in_place),
            (torch._C, "_group_tensors_by_device_and_dtype", _grouped),
        ):
            self.enter_context(mock.patch.object(owner, name, value, create=True))
        future = torch.__future__  # Module.to then keeps the very same parameters
        switches = (
            (future.get_swap_module_params_on_conversion, future.set_swap_module_params_on_conversion),
            # torch.tensor then copies where we see it
            (torch._C._only_lift_cpu_tensors, torch._C._set_only_lift_cpu_tensors),
        )
        for read, write in switches:
            self.callback(write, read())
            write(True)
        self.enter_context(self.mode)
        return self

    # --- counting -----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Count from zero again."""
        self.waits.clear()
        self.launches = self.synchronized = self.compilations = 0

    def wait(self, what: str) -> None:
        """The host waits for the device."""
        frames = [frame for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(HERE)]
        frames = [frame for frame in frames if "site-packages" not in frame.filename and frame.filename != __file__]
        where = f"{Path(frames[-1].filename).relative_to(HERE)}:{frames[-1].lineno}" if frames else "elsewhere"
        if self.recording is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what}, asked for by {where}")
        self.waits[f"{what}, {where}"] += 1

    def to_host(self, tensor: CudaTensor) -> torch.Tensor:
        """A copy on the CPU."""
        self.wait("copy to the host")
        with torch.no_grad(), _disable_current_modes():
            return tensor.on_cpu.detach().clone()

    # --- operations ---------------------------------------------------------------------------------------------------

    def operate(self, function, args, kwargs):
        """Do an operation on the CPU, and note what it would have cost."""
        flat, structure = tree_flatten((args, kwargs))
        tensors = [value for value in flat if isinstance(value, torch.Tensor)]
        on_gpu = [value for value in tensors if isinstance(value, CudaTensor)]
        wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
        to_gpu = bool(on_gpu) if wanted is None else wanted.type == "cuda"
        if not on_gpu and not to_gpu:
            return function(*args, **kwargs)
        free = bool(kwargs.get("non_blocking")) and getattr(tensors[0], "pinned", False)
        self._check(function, args, tensors, on_gpu, None if free else wanted)
        inner = [value.on_cpu if isinstance(value, CudaTensor) else value for value in flat]
        args, kwargs = tree_unflatten(inner, structure)
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if self.recording is not None:
            self.recording.before(function, args, kwargs)
        out = function(*args, **kwargs)
        if self.recording is not None:
            self.recording.after(function, args, kwargs, out)
        self.launches += self.recording is None and not is_view(function)
        if not to_gpu:
            return out
        known = {id(value.on_cpu): value for value in on_gpu}
        return tree_map_only(
            torch.Tensor, lambda value: known.get(id(value)) if id(value) in known else CudaTensor(value), out
        )

    def _check(self, function, args, tensors, on_gpu, wanted) -> None:
        """Count a wait, or raise what PyTorch raises."""
        if on_gpu and function in WAITS:
            self.wait(WAITS[function])
        elif function is aten._to_copy.default and wanted is not None:
            if (wanted.type == "cuda") != isinstance(tensors[0], CudaTensor):
                self.wait(f"copy {'from' if wanted.type == 'cuda' else 'to'} the host")
        elif function is aten.copy_.default and isinstance(tensors[0], CudaTensor) != isinstance(
            tensors[1], CudaTensor
        ):
            self.wait(f"copy {'from' if isinstance(tensors[0], CudaTensor) else 'to'} the host")
        elif function in INDEXING:
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    self.wait("boolean index")
                elif index is not None and not isinstance(index, CudaTensor):
                    self.wait("index from the host")
        if function not in MAY_MIX and any(value.ndim and not isinstance(value, CudaTensor) for value in tensors):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({function})"
            )

    def _compile(self, function, **_: Any):
        """``torch.compile`` as far as a capture sees it: inputs of another kind mean compiling again."""
        known: set = set()

        def compiled(*args: Any) -> Any:
            signature = tuple(_signature(value) for value in args)
            if signature not in known:
                if self.recording is not None:
                    raise RuntimeError(
                        "compiling again while a CUDA graph is captured: the inputs are of another kind now"
                    )
                known.add(signature)
                self.compilations += 1
            return function(*args)

        return compiled


def is_view(function) -> bool:
    """It launches nothing."""
    returned = function._schema.returns
    return bool(returned) and all(each.alias_info is not None and not each.alias_info.is_write for each in returned)


# --- CUDA graphs ------------------------------------------------------------------------------------------------------


class Recording:
    """Operations, with the memory that they read and write."""

    def __init__(self) -> None:
        self.operations: list[tuple] = []
        self._before: dict[int, tuple] = {}
        self._made: set[int] = set()

    def before(self, function, args, kwargs) -> None:
        """Remember what will be overwritten."""
        for position, argument in enumerate(function._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            for target in _tensors(value):
                storage = target.untyped_storage()
                if storage._cdata not in self._made and storage._cdata not in self._before:
                    self._before[storage._cdata] = (storage, storage.clone())

    def after(self, function, args, kwargs, out) -> None:
        """Keep the operation."""
        given = {value.untyped_storage()._cdata for value in _tensors((args, kwargs))}
        self._made |= {value.untyped_storage()._cdata for value in _tensors(out)} - given
        if not is_view(function):
            self.operations.append((function, args, kwargs, out))

    def finish(self) -> None:
        """As if nothing had happened: it has only been recorded."""
        for storage, content in self._before.values():
            storage.copy_(content)
        for *_, out in self.operations:
            for value in _tensors(out):
                if value.untyped_storage()._cdata in self._made and value.is_floating_point():
                    value.fill_(float("nan"))

    def replay(self) -> None:
        """Do it all again, into the same memory."""
        for function, args, kwargs, out in self.operations:
            for new, old in zip(_tensors(function(*args, **kwargs)), _tensors(out), strict=True):
                if new.data_ptr() != old.data_ptr():
                    old.copy_(new)


class CudaGraph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.recording = Recording()

    def replay(self) -> None:
        current.launches += 1
        with torch.no_grad(), _disable_current_modes():
            self.recording.replay()


class Graph:
    """torch.cuda.graph."""

    def __init__(self, graph: CudaGraph, *_: Any, **__: Any) -> None:
        self.graph = graph

    def __enter__(self) -> None:
        self.random = torch.get_rng_state()  # what is only recorded draws nothing
        current.recording = self.graph.recording

    def __exit__(self, *error: Any) -> None:
        current.recording = None
        torch.set_rng_state(self.random)
        with torch.no_grad(), _disable_current_modes():
            self.graph.recording.finish()


class Stream:
    """torch.cuda.Stream: everything happens in the order of Python here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = GPU

    def wait_stream(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait_event = record_event = record = wait = wait_stream

    def synchronize(self) -> None:
        current.synchronized += 1


class Event(Stream):
    """torch.cuda.Event, which has always come."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Event) -> float:
        return 1.0


# --- what else of PyTorch must believe it -----------------------------------------------------------------------------


def _forget() -> None:
    global current
    current = None


def _tensors(tree) -> list[torch.Tensor]:
    return [value for value in tree_flatten(tree)[0] if isinstance(value, torch.Tensor)]


def _signature(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.requires_grad
    if hasattr(value, "batch_size"):
        return tuple((key, _signature(value.get(key))) for key in sorted(value.keys(True, True), key=str))
    return str(value)


def _cuda_module(gpu: PretendCuda) -> dict[str, Any]:
    def synchronize(device=None) -> None:
        if gpu.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing: torch.cuda.synchronize")
        gpu.synchronized += 1

    def nothing(*_: Any, **__: Any) -> None:
        return None

    return {
        **dict.fromkeys(
            ("_lazy_init", "set_device", "empty_cache", "set_rng_state", "manual_seed", "manual_seed_all"), nothing
        ),
        **dict.fromkeys(("is_available", "is_initialized"), lambda: True),
        **dict.fromkeys(
            ("max_memory_allocated", "memory_allocated", "memory_reserved", "current_device"), lambda *_: 0
        ),
        "mem_get_info": lambda *_: (2**36, 2**36),
        "device_count": lambda: 1,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: gpu.recording is not None,
        "get_device_name": lambda *_: "a pretended GPU",
        "get_device_capability": lambda *_: (9, 0),
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "synchronize": synchronize,
        "Stream": Stream,
        "Event": Event,
        "current_stream": Stream,
        "stream": lambda *_: contextlib.nullcontext(),
        "CUDAGraph": CudaGraph,
        "graph": Graph,
    }


def _to_the_first(self, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to`` that need not ask which CUDA device is the current one."""

    def indexed(value):
        return GPU if isinstance(value, (str, torch.device)) and torch.device(value).type == "cuda" else value

    return _to(self, *map(indexed, args), **{name: indexed(value) for name, value in kwargs.items()})


def _pinned(self) -> torch.Tensor:
    """A copy from which the device reads by itself."""
    result = self.clone()
    result.pinned = True
    return result


def _load_in_place(self, *args: Any, **kwargs: Any) -> Any:
    """``Module.load_state_dict`` as it is where parameters are not swapped."""
    future = torch.__future__
    future.set_swap_module_params_on_conversion(False)
    try:
        return _load_state(self, *args, **kwargs)
    finally:
        future.set_swap_module_params_on_conversion(True)


def _one_hot(index: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As on a GPU, which does not look at the indices if it knows how many classes there are."""
    if num_classes == -1:
        num_classes = int(index.max()) + 1
    zeros = torch.zeros(*index.shape, num_classes, dtype=torch.int64, device=index.device)
    return zeros.scatter_(-1, index.unsqueeze(-1), 1)


def _grouped(tensors, with_indices=False):
    """By the device that Python sees (optimizers and gradient clipping ask)."""
    return {
        (GPU if any(isinstance(value, CudaTensor) for column in group[0] for value in column) else device, dtype): group
        for (device, dtype), group in _groups(tensors, with_indices).items()
    }


def _tagged(value):
    if isinstance(value, CudaTensor):
        return {"cuda:0": value.on_cpu.detach().clone()}
    if isinstance(value, dict):
        return {key: _tagged(each) for key, each in value.items()}
    return type(value)(map(_tagged, value)) if isinstance(value, (list, tuple)) else value


def _loaded(*args: Any, map_location: Any = None, **kwargs: Any) -> Any:
    target = None if map_location is None else torch.device(map_location).type

    def placed(value):
        if isinstance(value, dict) and set(value) == {"cuda:0"}:
            return value["cuda:0"] if target == "cpu" else CudaTensor(value["cuda:0"])
        if isinstance(value, dict):
            return {key: placed(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(placed, value))
        return CudaTensor(value) if isinstance(value, torch.Tensor) and target == "cuda" else value

    with _disable_current_modes():
        value = _load(*args, map_location="cpu", **kwargs)
    return placed(value)
