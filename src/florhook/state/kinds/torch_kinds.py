"""torch's tensors and storages, generators. Imported only once the program has imported torch."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import operator
from typing import TYPE_CHECKING, Any

import torch

from .attributes import getattr_dict
from .base import Kind, Missing, Opaque, Registry
from .builtin import CHANGED_BY_INIT
from .opaque import UNKNOWN
from .settings import add_world
from .torch_settings import TORCH

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

GLANCE = 1024  # bytes of a tensor that tell it from others in a set
STRETCHES = 64  # parts of memory that a tensor shows and that are told apart


class Tensor(Kind):
    """A strided tensor: a place in a storage, its gradient and its attributes.

    The autograd graph is not held: a tensor that hangs on one comes back with a stand-in for it, which looks the
    same and calls for execution of the block when anything is differentiated through it.
    """

    name, how, varies = "torch.Tensor", "in place", True

    def variant(self, obj: Any) -> Kind:
        if type(obj) in _PLAIN_CLASSES and is_ordinary(obj):
            return self
        with plainly(type(obj)):
            if obj.layout in SPARSE_LAYOUTS:
                return SPARSE
            ordinary = obj.layout is torch.strided and not obj.is_quantized and not obj.is_nested
            return self if ordinary and has_memory(obj) else FOREIGN

    def shell(self, obj: Any, scan: Scan) -> Any:
        with plainly(type(obj)):
            graph = graph_name(obj)
            form = None if graph is None else (tuple(obj.shape), obj.dtype)
            return type(obj), graph, form, obj.is_inference()

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, graph, form, inference = spec
        with torch._C.DisableTorchFunction():
            if inference:
                with torch.inference_mode():
                    empty = torch.empty(0, device="cpu")
            else:
                empty = torch.empty(0, device="cpu") if graph is None else _stand_in(graph, form, loader)
            return of_class(cls, empty)

    def content(self, obj: Any, scan: Scan) -> Any:
        with plainly(type(obj)):
            if not obj.is_leaf:
                scan.note_graph(obj)
            # The name of its graph stands in the shell alone: that of a view is made anew when it is looked at.
            graph = None if obj.is_leaf else True
            return obj.untyped_storage(), geometry_of(obj), graph, *extras_of(obj)

    def glance(self, obj: Any) -> str:
        with plainly(type(obj)):
            form = f"{tuple(obj.shape)} {obj.stride()} {obj.dtype} {obj.device} {obj.requires_grad}"
            size = obj.numel() * obj.element_size() if obj.device.type == "cpu" and obj.is_contiguous() else 0
            return f"{form} {ctypes.string_at(obj.data_ptr(), min(size, GLANCE)).hex()}" if size else form

    def prepare(self, obj: Any, content: Any, loader: Loader) -> None:
        with torch._C.DisableTorchFunction(), torch.inference_mode(obj.is_inference()), torch.no_grad():
            self._place(obj, *content[:3])

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        from ..restore import CannotRestoreError

        _, _, graph, *extras = content
        with torch._C.DisableTorchFunction():
            if graph is not None and obj.grad_fn is None:
                raise CannotRestoreError("a tensor has got an autograd graph since the loop was entered")
            put_extras(obj, extras, leaf=graph is None)

    @staticmethod
    def _place(obj: Any, storage: Any, geometry: Any, graph: str | None) -> None:
        if obj.grad_fn is not None and graph is None:
            obj.detach_()
        if obj.untyped_storage()._cdata != storage._cdata or geometry_of(obj) != geometry:
            if obj.requires_grad and obj.grad_fn is None and not geometry[0].is_floating_point:
                obj.requires_grad_(False)
            obj.data = laid_over(storage, geometry)


def plainly(cls: type) -> Any:
    """Reads of a tensor of that class go past what it makes of them (`__torch_function__`)."""
    return _PLAINLY if cls in _PLAIN_CLASSES else torch._C.DisableTorchFunctionSubclass()


_PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter)
_PLAINLY = contextlib.nullcontext()


def is_ordinary(obj: Any) -> bool:
    """Whether a tensor that is not of a class of its own is strided, and has bytes in this machine's memory.

    The common case, told quickly; others are looked at.
    """
    if not (obj.is_cpu and obj.layout is torch.strided) or obj.is_quantized or obj.is_nested:
        return False
    try:
        return bool(obj.data_ptr())
    except (RuntimeError, NotImplementedError):  # a wrapper
        return False


def has_memory(obj: Any) -> bool:
    """Whether a tensor's bytes are its own: those of wrappers and fakes are not."""
    try:
        storage = obj.untyped_storage()
        if storage.device.type != obj.device.type:
            return False
        return storage.device.type != "cpu" or not storage.nbytes() or bool(storage.data_ptr())
    except (RuntimeError, NotImplementedError):
        return False


def of_class(cls: type, empty: Any) -> Any:
    if cls is torch.Tensor:
        return empty
    if issubclass(cls, torch.nn.Parameter):
        return torch.Tensor._make_subclass(cls, empty, False)
    return empty.as_subclass(cls)


def geometry_of(obj: Any) -> tuple[Any, ...]:
    lazy = (obj.is_conj(), obj.is_neg())
    return obj.dtype, obj.storage_offset(), tuple(obj.size()), obj.stride(), lazy if any(lazy) else None


def tell_what_shows(storage: Any, geometry: Any, scan: Scan) -> None:
    """Sparse gradients lie in memory that was made for more: the rest of it was never written."""
    if hasattr(torch._C, "_storage_Use_Count"):
        dtype, offset, shape, stride, _ = geometry
        size = dtype.itemsize
        places = [((offset + start) * size, (offset + end) * size) for start, end in stretches(shape, stride)]
        scan.shows(("storage", storage._cdata), places, storage, use_count, HELD_BY_SCAN)


def stretches(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[tuple[int, int]]:
    """The parts of memory, in items, that a strided tensor shows; as one, gaps included, where they are many."""
    if not all(shape):
        return [(0, 0)]
    parts, length = [0], 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if step <= length:  # it goes on where the inner one ended, or lies over it
            length += (size - 1) * step
        elif len(parts) * size <= STRETCHES:
            parts = [start + index * step for index in range(size) for start in parts]
        else:
            length += parts[-1] + (size - 1) * step
            parts = [0]
    return [(start, start + length) for start in parts]


def use_count(storage: Any) -> int:
    return int(torch._C._storage_Use_Count(storage._cdata))


HELD_BY_SCAN = 1  # the storage's Python object


def laid_over(storage: Any, geometry: Any) -> Any:
    """A tensor of that geometry in a storage."""
    dtype, offset, shape, stride, lazy = geometry
    made = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)
    conjugated, negated = lazy or (False, False)
    made = made.conj() if conjugated else made
    return torch._neg_view(made) if negated else made


def extras_of(obj: Any) -> tuple[Any, ...]:
    """What a tensor has beside its values: flag, gradient, attributes, hooks."""
    leaf = obj.is_leaf
    hooks = (obj._backward_hooks, getattr(obj, "_post_accumulate_grad_hooks", None)) if leaf else None
    attributes = tuple((getattr_dict(obj) or {}).items())
    return obj.requires_grad, obj.grad if leaf else None, attributes, hooks


def put_extras(obj: Any, extras: Any, leaf: bool) -> None:
    requires_grad, gradient, attributes, hooks = extras
    if leaf:
        if obj.requires_grad != requires_grad:
            obj.requires_grad_(requires_grad)
        if obj.grad is not gradient:
            obj.grad = None  # it may have another layout
            obj.grad = gradient
    own = getattr_dict(obj)
    if own is not None:
        own.clear()
        own.update(attributes)
    for name, value in zip(("_backward_hooks", "_post_accumulate_grad_hooks"), hooks or (), strict=False):
        if value is not None or getattr(obj, name, None) is not None:
            setattr(obj, name, value)


class Sparse(Kind):
    """A sparse tensor: its indices and values, each a place in a storage."""

    name, how = "sparse torch.Tensor", "in place"

    def shell(self, obj: Any, scan: Scan) -> Any:
        with plainly(type(obj)):
            return type(obj), parts_of(obj)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, parts = spec
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return of_class(cls, joined(parts))

    def content(self, obj: Any, scan: Scan) -> Any:
        with plainly(type(obj)):
            if not obj.is_leaf:
                scan.note_graph(obj)
            parts = parts_of(obj)
            for storage, geometry in parts[3]:
                tell_what_shows(storage, geometry, scan)
            return parts, graph_name(obj), *extras_of(obj)

    def prepare(self, obj: Any, content: Any, loader: Loader) -> None:
        from ..restore import CannotRestoreError

        parts, graph, *_ = content
        with torch._C.DisableTorchFunction(), torch.no_grad():
            if graph_name(obj) is not None or graph is not None:
                raise CannotRestoreError("a sparse tensor hangs on an autograd graph")
            if not same_parts(parts_of(obj), parts):
                self._replace(obj, joined(parts))

    @staticmethod
    def _replace(obj: Any, made: Any) -> None:
        from ..restore import CannotRestoreError

        if obj.layout is torch.sparse_coo and made.layout is torch.sparse_coo:
            obj.data = made
            return
        try:  # compressed layouts do not follow an assignment to `data`
            torch.utils.swap_tensors(obj, of_class(type(obj), made))
        except RuntimeError as error:
            raise CannotRestoreError(f"a sparse tensor cannot be replaced: {error}") from error

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        with torch._C.DisableTorchFunction():
            put_extras(obj, content[2:], leaf=True)


SPARSE_LAYOUTS = {torch.sparse_coo: ("_indices", "_values")} | {
    layout: (f"{a}_indices", f"{b}_indices", "values")
    for layout, a, b in (
        (torch.sparse_csr, "crow", "col"),
        (torch.sparse_bsr, "crow", "col"),
        (torch.sparse_csc, "ccol", "row"),
        (torch.sparse_bsc, "ccol", "row"),
    )
}


def parts_of(obj: Any) -> tuple[Any, ...]:
    tensors = [getattr(obj, name)().detach() for name in SPARSE_LAYOUTS[obj.layout]]
    places = tuple((each.untyped_storage(), geometry_of(each)) for each in tensors)
    coalesced = obj.is_coalesced() if obj.layout is torch.sparse_coo else None
    return obj.layout, tuple(obj.shape), coalesced, places


def same_parts(one: Any, other: Any) -> bool:
    return bool(
        one[:3] == other[:3]
        and [(storage._cdata, geometry) for storage, geometry in one[3]]
        == [(storage._cdata, geometry) for storage, geometry in other[3]]
    )


def joined(parts: Any) -> Any:
    """A sparse tensor over its components, whose bytes need not be there yet."""
    layout, shape, coalesced, places = parts
    tensors = [laid_over(*place) for place in places]
    if layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(*tensors, shape, is_coalesced=coalesced, check_invariants=False)
    return torch.sparse_compressed_tensor(*tensors, shape, layout=layout, check_invariants=False)


class Foreign(Opaque):
    """Quantized, nested and mkldnn tensors, wrappers and fakes: found unchanged, or not to be captured."""

    name = "other torch.Tensor"

    def content(self, obj: Any, scan: Scan) -> None:
        try:
            file = io.BytesIO()
            torch.save(obj.detach(), file)
            scan.note_external(obj, hashlib.sha256(file.getbuffer()).digest())
        except Exception:  # each layout fails in its own way
            scan.note_external(obj, UNKNOWN)


class Scripted(Opaque):
    """A compiled module, whose tensors lie in C++: those are captured, the rest of it does not change."""

    name, how = "torch.ScriptModule", "in place"

    def content(self, obj: Any, scan: Scan) -> Any:
        tensors = (*torch._C.ParameterDict(obj).items(), *torch._C.BufferDict(obj).items())
        return tuple((name, tensor) for name, tensor in tensors if tensor is not None)

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        if type(obj) is Missing:
            return
        own = dict((*torch._C.ParameterDict(obj).items(), *torch._C.BufferDict(obj).items()))
        for name, tensor in content:
            if own.get(name) is not tensor:
                obj.setattr(name, tensor)


SPARSE, FOREIGN = Sparse(), Foreign()


class _Graph(torch.autograd.Function):  # type: ignore[misc]
    """Stands for the autograd graph that a restored tensor hung on."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, touched: Any) -> Any:
        ctx.touched = touched
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.touched("a gradient is asked for through a tensor whose graph was not recorded")


def _stand_in(graph: str, form: tuple[Any, Any], loader: Loader) -> Any:
    """A tensor of that shape and dtype with a graph behind it: autograd checks forms before it runs a graph."""
    named: Any = type(graph, (_Graph,), {})
    named._backward_cls.__name__ = graph
    with torch.enable_grad():
        return named.apply(torch.empty(form[0], dtype=form[1], requires_grad=True), loader.touched)


def graph_name(obj: Any) -> str | None:
    """The type of node that a tensor came out of, as its repr shows it; None for a leaf."""
    return None if obj.is_leaf else type(obj.grad_fn).__name__


class Storage(Kind):
    """The memory of tensors, named by its address in C++, since its Python object comes and goes."""

    name, how = "storage", "in place"

    def key(self, obj: Any) -> Any:
        return ("storage", obj._cdata)

    def same(self, obj: Any) -> Any:
        return True if obj.resizable() else obj.data_ptr()  # memory that is not torch's may be another's too

    def shell(self, obj: Any, scan: Scan) -> Any:
        owner, offset = (None, 0) if obj.resizable() else memory_owner(obj, scan)
        return obj.nbytes(), str(obj.device), owner, offset

    def create(self, spec: Any, loader: Loader) -> Any:
        size, device, owner, offset = spec
        if owner is None or not size:
            return torch.UntypedStorage(size, device=device)
        if isinstance(owner, bytearray):
            return torch.frombuffer(owner, dtype=torch.uint8, offset=offset, count=size).untyped_storage()
        from .numpy_kinds import view_of

        return torch.from_numpy(view_of(owner, "u1", (size,), (1,), offset)).untyped_storage()

    def content(self, obj: Any, scan: Scan) -> Any:
        size = obj.nbytes()
        if obj.device.type == "cpu":
            return size, scan.memory(self.key(obj), obj.data_ptr(), size)
        if obj.device.type == "meta":
            return size, None
        copy = scan.keep(obj.cpu())
        return size, scan.memory(self.key(obj), copy.data_ptr(), size)

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        size, data = content
        if obj.nbytes() != size:
            obj.resize_(size)
        if data is None or not size:
            return
        if obj.device.type == "cpu":
            loader.copy_to(obj.data_ptr(), size, data)
        else:
            staged = torch.UntypedStorage(size)
            loader.copy_to(staged.data_ptr(), size, data)
            obj.copy_(staged)


class Generator(Kind):
    """Its state, on any device."""

    name, how = "torch.Generator", "in place"

    def shell(self, obj: Any, scan: Scan) -> Any:
        return obj.device

    def create(self, spec: Any, loader: Loader) -> Any:
        return torch.Generator(spec)

    def content(self, obj: Any, scan: Scan) -> bytes:
        return bytes(obj.get_state().numpy())

    def apply(self, obj: Any, content: bytes, loader: Loader) -> None:
        with torch._C.DisableTorchFunction():  # a default device would be asked for the bytes
            obj.set_state(torch.frombuffer(bytearray(content), dtype=torch.uint8))


def memory_owner(storage: Any, scan: Scan) -> tuple[Any, int]:
    """The array, bytearray or other storage that the walk met in whose memory a storage lies, and where in it.

    Of several, one that need not be made is best, then one that owns its memory for sure, then the largest, then the
    first that was met: so that of two storages over the same memory one has it from the other.
    """
    start, size = storage.data_ptr(), storage.nbytes()
    around: list[tuple[tuple[Any, ...], Any, int]] = []
    for number, (obj, kind) in enumerate(zip(scan.objects, scan.kinds, strict=True)):
        address, length = _owned(obj, kind)
        if address <= start and start + size <= address + length:
            rank = (scan.was_alive(number), kind.name != "storage", length, -number)
            around.append((rank, obj, start - address))
    _, owner, offset = max(around, key=operator.itemgetter(0))  # the storage itself is among them
    return (None, 0) if owner is storage else (owner, offset)


def _owned(obj: Any, kind: Kind) -> tuple[int, int]:
    """Address and size of the memory that an object owns."""
    if kind.name == "storage":
        return (obj.data_ptr(), obj.nbytes()) if obj.device.type == "cpu" else (0, 0)
    if kind.name == "numpy.ndarray" and obj.base is None:
        return obj.__array_interface__["data"][0], obj.nbytes
    if type(obj) is bytearray and obj:
        return ctypes.addressof(ctypes.c_char.from_buffer(obj)), len(obj)
    return 0, 0


def _hook_step(optimizer: Any) -> None:
    """The first optimizer of a class wraps the class's `step`, which schedulers then wrap for one optimizer."""
    patch = getattr(optimizer, "_patch_step_function", None)
    if patch is not None:
        patch()


def register(registry: Registry) -> None:
    add_world(TORCH)
    registry.add(Tensor(), torch.Tensor, torch.nn.Parameter, derived=True)
    registry.add(SPARSE)
    registry.add(FOREIGN)
    registry.add(Scripted(), torch._C.ScriptModule)
    registry.add(Storage(), torch.UntypedStorage)
    registry.add(Generator(), torch.Generator)
    CHANGED_BY_INIT[torch.optim.Optimizer] = _hook_step
    registry.plain(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
