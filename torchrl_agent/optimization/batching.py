"""Equal operations on different tensors as one batched operation, so that to a GPU actor and critic of equal shape are
one network, with half as many launches.
"""

from __future__ import annotations

import heapq
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

Group: TypeAlias = "list[fx.Node]"
"""Operations that become one, or a single one."""

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default)
"""Operators whose inputs are worth stacking. Others are batched where one of their inputs is a stack already."""
BATCHED: dict[Any, Callable[..., Any]] = {
    aten.mm.default: torch.bmm,
    aten.addmm.default: lambda bias, left, right: torch.bmm(left, right) + bias.unsqueeze(1),
    aten.t.default: lambda values: values.transpose(1, 2),
    aten.sum.dim_IntList: lambda values, dims, *rest: values.sum([dim + (dim >= 0) for dim in dims], *rest),
    aten.detach.default: lambda values: values,
}
"""Operators for matrices, and the same for stacks of them. Elementwise operators are both."""
VIEWS = (operator.getitem, aten._unsafe_view.default)
"""Operators whose results share memory with their first input, undeclared."""
TRIED = 8
"""Number of groups that an operation is tried for."""


def batch_products(traced: fx.GraphModule, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """Return a traced function in which matrix products of equal shapes that do not depend on each other are one
    product of stacks, and so is what follows each of them alike. Products of a column and a row are elementwise.

    Products of memory that is written before the last of them stay as they are, and so does what follows with memory
    that is written at all, and functions of which it is not known what they write.
    """
    if not all(map(_is_known, traced.graph.nodes)):
        return traced
    groups = _Groups(traced.graph, inputs)
    groups.find(_is_product)
    groups.find(groups.follows)
    return fx.GraphModule(traced, _Batched(groups).graph)


class _Groups:
    """Operations of a graph that become one.

    Attributes:
        needs: what has to run before each operation.
        of: the group of each operation.
    """

    def __init__(self, graph: fx.Graph, inputs: Sequence[Tensor]) -> None:
        self.needs = {node: set(node.all_input_nodes) for node in graph.nodes}
        self.of: dict[fx.Node, Group] = {node: [node] for node in graph.nodes}
        self._candidates: set[fx.Node] = set()
        self._fixed: set[fx.Node] = set()
        """Operations on memory that is written before the last product, of which a stack would be a copy."""
        self._written: set[fx.Node] = set()
        """Operations on memory that is written at all."""
        self._keep_sides_of_writes(inputs)
        random = [node for node in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]
        for before, after in pairwise(random):  # each draws the numbers that it would have drawn
            self.needs[after].add(before)

    def _keep_sides_of_writes(self, inputs: Sequence[Tensor]) -> None:
        """Let operations that use memory which another one writes stay before it or after it."""
        owner: dict[fx.Node, fx.Node] = {}  # the operation that allocated the memory of each
        users: dict[fx.Node, Group] = defaultdict(list)
        first: dict[int, fx.Node] = {}  # input with a memory
        for node, value in zip((node for node in self.needs if node.op == "placeholder"), inputs, strict=True):
            owner[node] = first.setdefault(value.untyped_storage()._cdata, node)
        for node in self.needs:
            shared = [argument for argument, _ in _shared(node)]
            owner.setdefault(node, owner[shared[0]] if shared else node)
            for memory in {owner[each] for each in (node, *node.all_input_nodes)}:
                users[memory].append(node)
        place = {node: place for place, node in enumerate(self.needs)}
        last = max((place[node] for node in self.needs if _is_product(node)), default=0)
        for node in self.needs:
            for memory in {owner[argument] for argument, written in _shared(node) if written}:
                index = users[memory].index(node)
                self.needs[node].update(users[memory][:index])
                for later in users[memory][index + 1 :]:
                    self.needs[later].add(node)
                self._written.update(users[memory])
                if place[node] < last:
                    self._fixed.update(users[memory])

    def find(self, wanted: Callable[[fx.Node], bool]) -> None:
        """Put operations that are ``wanted`` and alike into groups, if they do not depend on each other."""
        alike: dict[Any, list[Group]] = defaultdict(list)
        for node in filter(wanted, self.of):
            if node in self._fixed:
                continue
            kind = self._kind(node)
            self._candidates.add(node)
            tried = alike[kind][-TRIED:]
            group = next((each for each in tried if not self._related(node, each[0])), None)
            if group is None:
                alike[kind].append(self.of[node])
            else:
                group.append(node)
                self.of[node] = group

    def follows(self, node: fx.Node) -> bool:
        """True if an operation can be batched and one of its inputs is in a group."""
        target, inputs = node.target, node.all_input_nodes
        if not isinstance(target, torch._ops.OpOverload) or target in PRODUCTS or node.kwargs or node in self._written:
            return False
        if target in BATCHED:  # a sum over no axes is one over all
            possible = all(map(_is_matrix, inputs)) and node.args[1:2] not in (([],), (None,))
        else:
            elementwise = torch.Tag.pointwise in target.tags and not list(_shared(node))
            random = torch.Tag.nondeterministic_seeded in target.tags
            possible = elementwise and not random and all(_size(each) == _size(node) for each in inputs)
        return possible and any(map(self._is_stack, inputs))

    def _is_stack(self, node: fx.Node) -> bool:
        return node in self._candidates and (node.target not in PRODUCTS or len(self.of[node]) > 1)

    def _kind(self, node: fx.Node) -> Any:
        """Properties that the operations of a group share."""

        def kind(argument: Any) -> Any:
            if not isinstance(argument, fx.Node):
                return repr(argument)
            stacked = node.target not in PRODUCTS and self._is_stack(argument)
            return _size(argument), id(self.of[argument]) if stacked else None

        return node.target, _size(node), *map(kind, node.args)

    def _related(self, one: fx.Node, other: fx.Node) -> bool:
        """True if one of two operations, or of their groups, needs the other."""
        return self._is_needed(one, other) or self._is_needed(other, one)

    def _is_needed(self, goal: fx.Node, node: fx.Node) -> bool:
        seen, left = set(self.of[node]), list(self.of[node])
        while left:
            for each in self.needs[left.pop()] - seen:
                if self.of[each] is self.of[goal]:
                    return True
                seen.update(self.of[each])
                left.extend(self.of[each])
        return False

    def ordered(self) -> Iterator[Group]:
        """Yield all groups in an order in which they can run, close to that of the graph."""
        place = {node: place for place, node in enumerate(self.of)}
        groups = {place[group[0]]: group for group in self.of.values()}
        first = {node: place[self.of[node][0]] for node in self.of}
        sorter = TopologicalSorter[int]()
        for node, needs in self.needs.items():
            sorter.add(first[node], *map(first.__getitem__, needs))
        sorter.prepare()
        ready: list[int] = []
        while sorter.is_active():
            for each in sorter.get_ready():
                heapq.heappush(ready, each)
            earliest = heapq.heappop(ready)
            yield groups[earliest]
            sorter.done(earliest)


class _Batched:
    """The graph in which each group is one operation."""

    def __init__(self, groups: _Groups) -> None:
        self.graph = fx.Graph()
        self._tracer = fx.proxy.GraphAppendingTracer(self.graph)
        self._single: dict[fx.Node, fx.Node] = {}
        self._stacks: dict[tuple[fx.Node, ...], fx.Proxy] = {}
        self._members: dict[fx.Node, tuple[fx.Node, ...]] = {}
        """The group of each operation, ordered by those whose results its members use."""
        for group in groups.ordered():
            if len(group) == 1:
                self._single[group[0]] = single = self.graph.node_copy(group[0], self._get)
                if _is_outer(group[0]):
                    single.target = aten.mul.Tensor
            else:
                self._add(group)

    def _add(self, group: Group) -> None:
        """Add an operation on stacks."""
        members = tuple(sorted(group, key=self._place))
        self._members.update(dict.fromkeys(members, members))
        arguments = zip(*(node.args for node in members), strict=True)
        inputs = [self._stack(each) if isinstance(each[0], fx.Node) else each[0] for each in arguments]
        target: Any = members[0].target
        self._stacks[members] = BATCHED.get(target, target)(*inputs)

    def _place(self, node: fx.Node) -> int:
        """Place of an operation in its group."""
        inputs = (each for each in node.all_input_nodes if each in self._members)
        return next((self._members[each].index(each) for each in inputs), 0)

    def _stack(self, nodes: tuple[fx.Node, ...]) -> fx.Proxy:
        """Return the stack of some results."""
        if nodes not in self._stacks:
            if all(node.target is aten.t.default for node in nodes):
                stack = BATCHED[aten.t.default](self._stack(tuple(node.args[0] for node in nodes)))
            elif len(set(nodes)) == 1:
                stack = self._proxy(nodes[0]).expand(len(nodes), *_size(nodes[0])[0])
            else:
                stack = torch.stack([self._proxy(node) for node in nodes])
            self._stacks[nodes] = stack
        return self._stacks[nodes]

    def _proxy(self, node: fx.Node) -> fx.Proxy:
        return fx.Proxy(self._get(node), self._tracer)

    def _get(self, node: fx.Node) -> fx.Node:
        """Return the result of one operation."""
        if node not in self._single:
            members = self._members[node]
            self._single[node] = self._stacks[members].select(0, members.index(node)).node
        return self._single[node]


def _shared(node: fx.Node) -> Iterator[tuple[fx.Node, bool]]:
    """Yield arguments whose memory the result of an operation may share, and whether it writes there."""
    if node.target in VIEWS:
        yield node.all_input_nodes[0], False
    elif isinstance(node.target, torch._ops.OpOverload):
        for argument, declared in zip(node.args, node.target._schema.arguments, strict=False):
            if declared.alias_info is not None:
                given = argument if isinstance(argument, list | tuple) else [argument]
                yield from ((each, declared.alias_info.is_write) for each in given if isinstance(each, fx.Node))


def _is_known(node: fx.Node) -> bool:
    """True if it is known what an operation writes, and what it reads does not depend on where its inputs lie."""
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is aten.as_strided.default:
        return False
    declared = {each.name: each.alias_info for each in node.target._schema.arguments}
    return all(declared[name] is None for name in node.kwargs)


def _is_product(node: fx.Node) -> bool:
    """True for a product of matrices, to which a vector may be added."""
    if node.target not in PRODUCTS or node.kwargs or _is_outer(node):
        return False
    return node.target is aten.mm.default or len(_size(node.args[0])[0]) == 1


def _is_outer(node: fx.Node) -> bool:
    """True for a product of a column and a row."""
    return node.target is aten.mm.default and _size(node.args[0])[0][1] == 1


def _is_matrix(node: fx.Node) -> bool:
    shape = _size(node)[0]
    return shape is not None and len(shape) == 2


def _size(node: Any) -> tuple[Any, Any, Any]:
    """Shape, type and device of a result, if it is one tensor."""
    value = node.meta.get("val")
    return (tuple(value.shape), value.dtype, value.device) if isinstance(value, Tensor) else (None, None, None)
