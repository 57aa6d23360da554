"""Random object graphs, the same for the same seed, and their comparison node by node."""

from __future__ import annotations

import collections
import dataclasses
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]


class Thing:
    """Free attributes."""


class Slots:
    __slots__ = ("a", "b", "c")


class Mixed(Slots):
    __slots__ = ("__dict__",)


@dataclasses.dataclass(eq=False)
class Record:
    x: Any = None
    y: Any = None


class Named:
    """Hashes and compares by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


class OwnList(list):  # type: ignore[type-arg]
    pass


class OwnDict(dict):  # type: ignore[type-arg]
    pass


CLASSES = (Thing, Slots, Mixed, Record, Named, OwnList, OwnDict)
NAMES = ("a", "b", "c")


def closure_over(value: Any) -> Any:
    held = value

    def get(new: Any = None, put: bool = False) -> Any:
        nonlocal held
        if put:
            held = new
        return held

    return get


class Heap:
    """A graph under construction. `nodes` is its root."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[Any] = []
        for _ in range(size):
            self.add()

    def play(self, moves: int) -> None:
        for _ in range(moves):
            self.random.choice(
                (self.link, self.link, self.link, self.write, self.write, self.cut, self.add, self.drop)
            )()

    def pick(self, *types_: type) -> Any:
        found = [node for node in self.nodes if not types_ or isinstance(node, types_)]
        return self.random.choice(found) if found else None

    def add(self) -> None:
        self.nodes.append(self.random.choice(MAKERS)(self))

    def drop(self) -> None:
        if len(self.nodes) > 2:
            del self.nodes[self.random.randrange(len(self.nodes))]

    def link(self) -> None:
        """Put a node, or a value with it, somewhere into another."""
        target, value = self.pick(), self.pick()
        number = self.random.randrange(6)
        value = (value, number) if number == 0 else value
        if isinstance(target, (list, collections.deque)):
            target.append(value)
        elif isinstance(target, dict):
            key = self.random.choice((number, str(number), (number, "k"), Named(str(number))))
            target.pop(key, None)
            target[key] = value
        elif isinstance(target, set):
            target.symmetric_difference_update({number, Named(str(number))})
        elif isinstance(target, types.CellType):
            target.cell_contents = value
        elif isinstance(target, types.FunctionType):
            target(value, put=True)
        elif isinstance(target, Record):
            setattr(target, self.random.choice("xy"), value)
        elif isinstance(target, (Thing, Slots, BaseException)):
            setattr(target, self.random.choice(NAMES), value)
        elif isinstance(target, np.ndarray) and target.dtype.hasobject and target.ndim == 1 and len(target):
            target[number % len(target)] = value if isinstance(value, (dict, set)) else None

    def write(self) -> None:
        """Change memory: numbers of an array, a tensor or a bytearray."""
        target, number = self.pick(np.ndarray, bytearray, *TENSORS), self.random.randrange(1, 99)
        if isinstance(target, bytearray):
            if target:
                target[self.random.randrange(len(target))] = number
        elif isinstance(target, np.ndarray):
            if target.flags.writeable and target.size and not target.dtype.hasobject:
                target.flat[self.random.randrange(target.size)] = number
        elif target is not None:
            self._write_tensor(target, number)

    def _write_tensor(self, target: Any, number: int) -> None:
        with torch.no_grad():
            if target.layout is not torch.strided:
                target.mul_(2)
            elif number % 5 == 0 and target.is_leaf and target.is_floating_point():
                target.grad = None if number % 2 else torch.full_like(target, number)
            elif target.numel() and target.is_contiguous():
                target.view(-1)[number % target.numel()] = number

    def cut(self) -> None:
        """Take something out."""
        target = self.pick()
        if isinstance(target, (list, collections.deque)) and target and target is not self.nodes:
            target.pop()
        elif isinstance(target, dict) and target:
            target.popitem()
        elif isinstance(target, set):
            target.clear()
        elif isinstance(target, (Thing, Slots, Mixed)):
            for name in NAMES[:2]:
                if hasattr(target, name):
                    delattr(target, name)
        elif isinstance(target, types.CellType):
            try:
                del target.cell_contents
            except ValueError:
                return

    # Nodes that belong to others -----------------------------------------------------------------------------

    def array(self) -> Any:
        shape = self.random.choice(((7,), (4, 50), (3, 4, 5), (0,), ()))
        made = np.arange(int(np.prod(shape)), dtype=self.random.choice(("f8", "f4", "i4", "u1", "c16")))
        return made.reshape(shape).copy(order=self.random.choice("CF"))

    def part_of_array(self) -> Any:
        base = self.pick(np.ndarray)
        if base is None or not base.ndim or not base.size:
            return np.zeros(5)
        return self.random.choice((base[1:], base[::-1], base.T, base[..., ::2], base[:1]))

    def part_of_bytes(self) -> Any:
        base = self.pick(bytearray)
        return bytearray(700) if not base else np.frombuffer(base, np.uint8)[1:]

    def objects(self) -> Any:
        made = np.empty(3, dtype=object)
        made[0] = self.pick(list, dict)
        return made

    def frozen(self) -> Any:
        members = [Named(name) for name in self.random.sample("pqrstu", 2)]
        return self.random.choice((frozenset(members), frozenset([frozenset(members), 1]), frozenset("ab")))

    def error(self) -> Any:
        made = self.random.choice((ValueError("v", 1), OSError(2, "no", "file"), KeyError(("k",))))
        made.__cause__ = self.pick(BaseException)
        return made

    def tensor(self) -> Any:
        shape = self.random.choice(((9,), (30, 20), (2, 3, 4), (0,), ()))
        made = torch.arange(int(np.prod(shape))).reshape(shape)
        made = made.to(
            self.random.choice((torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8))
        )
        return torch.nn.Parameter(made) if made.is_floating_point() and self.random.random() < 0.4 else made

    def part_of_tensor(self) -> Any:
        base = self.pick(*TENSORS)
        if base is None or base.layout is not torch.strided or not base.ndim or not base.numel():
            return torch.ones(3)
        base = base.detach()
        return self.random.choice(
            (base[1:], base.transpose(0, -1), base.unsqueeze(0).expand(2, *base.shape), base)
        )

    def tensor_over_array(self) -> Any:
        base = self.pick(np.ndarray)
        good = base is not None and base.dtype.kind in "fiuc" and base.flags.writeable
        if not good or any(stride < 0 for stride in base.strides):
            return torch.zeros(2)
        return torch.from_numpy(base)

    def array_over_tensor(self) -> Any:
        base = self.pick(*TENSORS)
        if base is None or base.layout is not torch.strided or base.dtype is torch.bfloat16:
            return np.ones(2)
        return base.detach().numpy()

    def sparse(self) -> Any:
        dense = torch.eye(self.random.randrange(2, 30))
        return dense.to_sparse() if self.random.random() < 0.5 else dense.to_sparse_csr()


MAKERS: list[Callable[[Heap], Any]] = [
    lambda heap: [], lambda heap: {}, lambda heap: set(), lambda heap: collections.deque(maxlen=4),
    lambda heap: collections.defaultdict(list), lambda heap: collections.OrderedDict(), lambda heap: Thing(),
    lambda heap: Slots(), lambda heap: Mixed(), lambda heap: Record(), lambda heap: OwnList(), lambda heap: OwnDict(),
    lambda heap: types.CellType(), lambda heap: closure_over(heap.pick()), lambda heap: bytearray(b"abc" * 300),
    lambda heap: types.SimpleNamespace(), Heap.array, Heap.array, Heap.part_of_array, Heap.part_of_array,
    Heap.part_of_bytes, Heap.objects, Heap.frozen, Heap.error,
]  # fmt: skip
TENSORS: tuple[type, ...] = ()
if torch is not None:
    TENSORS = (torch.Tensor,)
    MAKERS += [
        Heap.tensor, Heap.tensor, Heap.part_of_tensor, Heap.part_of_tensor, Heap.tensor_over_array,
        Heap.array_over_tensor, Heap.sparse,
    ]  # fmt: skip


class Differs(AssertionError):  # noqa: N818
    pass


class Lockstep:
    """Walks two graphs at once. Objects must correspond one to one, and so must memory that is shared."""

    def __init__(self, one: Any, other: Any) -> None:
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.kept: list[Any] = []
        self.memory: list[tuple[int, int, int, int]] = []
        self.work: list[tuple[str, Any, Any]] = [("root", one, other)]
        while self.work:
            self._compare(*self.work.pop())
        self._compare_memory()

    def _same(self, where: str, one: Any, other: Any) -> None:
        if not (one == other):
            raise Differs(f"{where}: {one!r} is {other!r}")

    def _compare(self, where: str, one: Any, other: Any) -> None:
        self._same(f"{where} (type)", type(one), type(other))
        if isinstance(one, (int, float, str, bytes, type(None), type)):
            return self._same(where, one, other)
        if not isinstance(one, (tuple, frozenset)):
            if id(one) in self.there or id(other) in self.back:
                return self._same(
                    f"{where} (identity)",
                    (self.there.get(id(one)), id(one)),
                    (id(other), self.back.get(id(other))),
                )
            self.there[id(one)], self.back[id(other)] = id(other), id(one)
            self.kept += (one, other)
        parts, others = self._parts(where, one), self._parts(where, other)
        self._same(f"{where} (parts)", [name for name, _ in parts], [name for name, _ in others])
        self.work += [(f"{where}{name}", a, b) for (name, a), (_, b) in zip(parts, others, strict=True)]
        if isinstance(one, (np.ndarray, *TENSORS)) and memory_of(one):
            self.memory.append((*memory_of(one), *memory_of(other)))
        return None

    def _parts(self, where: str, obj: Any) -> list[tuple[str, Any]]:
        own = [(f".{name}", value) for name, value in getattr(obj, "__dict__", {}).items()]
        own += [
            (f".{n}", getattr(obj, n))
            for n in NAMES
            if isinstance(obj, Slots) and n not in vars_of(obj) and hasattr(obj, n)
        ]
        if isinstance(obj, dict):
            own += [(f"[{key_text(key)}]", value) for key, value in obj.items()]
            own += [(f"(key {n})", key) for n, key in enumerate(obj)]
            own.append((".default_factory", getattr(obj, "default_factory", None)))
        elif isinstance(obj, (set, frozenset)):
            own += [(f"{{{n}}}", item) for n, item in enumerate(sorted(obj, key=key_text))]
            own.append(("(found)", all(item in obj for item in obj)))
        elif isinstance(obj, (list, tuple, collections.deque)):
            own += [(f"[{n}]", item) for n, item in enumerate(obj)]
            own.append((".maxlen", getattr(obj, "maxlen", None)))
        elif isinstance(obj, types.CellType):
            own += contents_of(obj)
        elif isinstance(obj, types.FunctionType):
            own += [(f"(cell {n})", cell) for n, cell in enumerate(obj.__closure__ or ())]
        elif isinstance(obj, bytearray):
            own.append(("(bytes)", bytes(obj)))
        elif isinstance(obj, BaseException):
            own += [(".args", obj.args), (".cause", obj.__cause__), ("(text)", str(obj))]
        elif isinstance(obj, np.ndarray):
            own += array_parts(obj)
        elif isinstance(obj, TENSORS):
            own += tensor_parts(obj)
        return own

    def _compare_memory(self) -> None:
        """Which of them overlap, and where."""
        for n, (start, size, other, _) in enumerate(self.memory):
            for start2, size2, other2, _ in self.memory[:n]:
                here = start < start2 + size2 and start2 < start + size
                offset = other - other2
                if here and offset != start - start2:
                    raise Differs(f"memory that was shared at {start - start2} is shared at {offset}")
                if not here and other < other2 + size2 and other2 < other + size:
                    raise Differs("memory is shared that was not")


def vars_of(obj: Any) -> dict[str, Any]:
    return getattr(obj, "__dict__", {})


def key_text(key: Any) -> str:
    if isinstance(key, frozenset):
        return repr(sorted(map(key_text, key)))
    return f"Named {key.name}" if isinstance(key, Named) else repr(key)


def contents_of(cell: types.CellType) -> list[tuple[str, Any]]:
    try:
        return [("(held)", cell.cell_contents)]
    except ValueError:
        return [("(empty)", None)]


def array_parts(array: Any) -> list[tuple[str, Any]]:
    form = (str(array.dtype), array.shape, array.strides if array.size else (), array.flags.writeable)
    items = list(array.ravel()) if array.dtype.hasobject else [array.tobytes()]
    return [("(form)", form), *((f"[{n}]", item) for n, item in enumerate(items))]


def tensor_parts(tensor: Any) -> list[tuple[str, Any]]:
    form = (str(tensor.dtype), tuple(tensor.shape), str(tensor.layout), tensor.requires_grad)
    if tensor.layout is not torch.strided:
        return [("(form)", form), ("(values)", repr(tensor.to_dense().tolist()))]
    strides = tensor.stride() if tensor.numel() else ()
    values = tensor.detach().to(torch.float64 if tensor.is_floating_point() else tensor.dtype)
    return [
        ("(form)", (*form, strides, tensor.storage_offset())),
        ("(values)", repr(values.tolist())),
        (".grad", tensor.grad),
    ]


def memory_of(obj: Any) -> tuple[int, int] | None:
    """The first byte and the number of bytes from there to the last one, of what has any."""
    if isinstance(obj, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(obj) if obj.size else (0, 0)
    elif obj.layout is torch.strided and obj.numel():
        low = obj.data_ptr()
        reach = sum((size - 1) * stride for size, stride in zip(obj.shape, obj.stride(), strict=True))
        high = low + (reach + 1) * obj.element_size()
    else:
        return None
    return (low, high - low) if high > low else None
