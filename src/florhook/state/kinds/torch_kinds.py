"""torch's tensors and storages, generators. Imported only once the program has imported torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .base import Kind, Registry
from .builtin import getattr_dict

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class Tensor(Kind):
    """A strided tensor: a place in a storage, its gradient and its attributes.

    The autograd graph is not held: a tensor that hangs on one comes back with a stand-in for it, which looks the
    same and calls for execution of the block when anything is differentiated through it.
    """

    name, how = "torch.Tensor", "in place"

    def shell(self, obj: Any, scan: Scan) -> Any:
        graph = graph_name(obj)
        return type(obj), graph, None if graph is None else (tuple(obj.shape), obj.dtype)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, graph, form = spec
        empty = torch.empty(0) if graph is None else _stand_in(graph, form, loader)
        if cls is torch.Tensor:
            return empty
        if issubclass(cls, torch.nn.Parameter):
            return torch.Tensor._make_subclass(cls, empty, False)
        return empty.as_subclass(cls)

    def content(self, obj: Any, scan: Scan) -> Any:
        storage, leaf = obj.untyped_storage(), obj.is_leaf
        if not leaf:
            scan.note_graph(obj)
        attributes = tuple((key, value) for key, value in (getattr_dict(obj) or {}).items())
        geometry = (obj.dtype, obj.storage_offset(), tuple(obj.shape), obj.stride())
        gradient = obj.grad if leaf else None
        return storage, geometry, graph_name(obj), obj.requires_grad, gradient, attributes, hooks_of(obj)

    def prepare(self, obj: Any, content: Any, loader: Loader) -> None:
        with torch.no_grad():
            self._place(obj, *content[:3])

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        from ..restore import CannotRestoreError

        _, _, graph, requires_grad, gradient, attributes, hooks = content
        if graph is not None and obj.grad_fn is None:
            raise CannotRestoreError("a tensor has got an autograd graph since the loop was entered")
        if graph is None:
            obj.requires_grad_(requires_grad)
            obj.grad = gradient
        own = getattr_dict(obj)
        if own is not None:
            own.clear()
            own.update(attributes)
        if hooks is not None:
            obj._backward_hooks = hooks

    @staticmethod
    def _place(obj: Any, storage: Any, geometry: Any, graph: str | None) -> None:
        dtype, offset, shape, stride = geometry
        if obj.grad_fn is not None and graph is None:
            obj.detach_()
        same = obj.untyped_storage()._cdata == storage._cdata and obj.dtype == dtype
        if not same or (obj.storage_offset(), tuple(obj.shape), obj.stride()) != (offset, shape, stride):
            if obj.requires_grad and obj.grad_fn is None and not dtype.is_floating_point:
                obj.requires_grad_(False)
            obj.data = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)


class _Graph(torch.autograd.Function):  # type: ignore[misc]
    """Stands for the autograd graph that a restored tensor hung on."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, loader: Any) -> Any:
        ctx.loader = loader
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.loader.touched("a gradient is asked for through a tensor whose graph was not recorded")


def _stand_in(graph: str, form: tuple[Any, Any], loader: Loader) -> Any:
    """A tensor of that shape and dtype with a graph behind it: autograd checks forms before it runs a graph."""
    named: Any = type(graph, (_Graph,), {})
    named._backward_cls.__name__ = graph
    with torch.enable_grad():
        return named.apply(torch.empty(form[0], dtype=form[1], requires_grad=True), loader)


def graph_name(obj: Any) -> str | None:
    """The type of node that a tensor came out of, as its repr shows it; None for a leaf."""
    return None if obj.is_leaf else type(obj.grad_fn).__name__


class Storage(Kind):
    """The memory of tensors, named by its address in C++, since its Python object comes and goes."""

    name, how = "storage", "in place"

    def key(self, obj: Any) -> Any:
        return ("storage", obj._cdata)

    def same(self, obj: Any) -> bool:
        return True

    def shell(self, obj: Any, scan: Scan) -> Any:
        return obj.nbytes(), str(obj.device)

    def create(self, spec: Any, loader: Loader) -> Any:
        return torch.UntypedStorage(spec[0], device=spec[1])

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
    name, how = "torch.Generator", "in place"

    def shell(self, obj: Any, scan: Scan) -> str:
        return str(obj.device)

    def create(self, spec: str, loader: Loader) -> Any:
        return torch.Generator(spec)

    def content(self, obj: Any, scan: Scan) -> bytes:
        return bytes(obj.get_state().numpy())

    def apply(self, obj: Any, content: bytes, loader: Loader) -> None:
        obj.set_state(torch.frombuffer(bytearray(content), dtype=torch.uint8))


def hooks_of(obj: Any) -> Any:
    return obj._backward_hooks if obj.is_leaf else None


def world() -> tuple[Any, ...]:
    """torch's state outside the graph: random states of each device, modes, defaults."""
    devices: tuple[bytes, ...] = ()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        devices = tuple(bytes(state.numpy()) for state in torch.cuda.get_rng_state_all())
    return (
        bytes(torch.get_rng_state().numpy()),
        devices,
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def set_world(state: tuple[Any, ...]) -> None:
    cpu, devices, grad, dtype, deterministic = state
    torch.set_rng_state(torch.frombuffer(bytearray(cpu), dtype=torch.uint8))
    if devices:
        torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(s), dtype=torch.uint8) for s in devices])
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
    if torch.are_deterministic_algorithms_enabled() != deterministic:
        torch.use_deterministic_algorithms(deterministic)


def register(registry: Registry) -> None:
    registry.add(Tensor(), torch.Tensor, torch.nn.Parameter, derived=True)
    registry.add(Storage(), torch.UntypedStorage)
    registry.add(Generator(), torch.Generator)
    registry.plain(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
