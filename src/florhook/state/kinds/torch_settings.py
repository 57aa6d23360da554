"""torch's state outside the graph: random states, modes, defaults and flags. Imported after torch only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from .settings import Setting, World

MISSING = ("not there",)


def _random_state() -> bytes:
    return bytes(torch.get_rng_state().numpy())


def _set_random_state(state: bytes) -> None:
    torch.set_rng_state(_state_tensor(state))


def _state_tensor(state: bytes) -> Any:
    with torch._C.DisableTorchFunction():  # a default device would be asked for it
        return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def _device_states() -> tuple[bytes, ...]:
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return ()
    return tuple(bytes(state.numpy()) for state in torch.cuda.get_rng_state_all())


def _set_device_states(states: tuple[bytes, ...]) -> None:
    if states:
        torch.cuda.set_rng_state_all([_state_tensor(state) for state in states])


def _mps_state() -> bytes:
    available = torch.backends.mps.is_available()
    return bytes(torch.mps.get_rng_state().numpy()) if available else b""


def _set_mps_state(state: bytes) -> None:
    if state:
        torch.mps.set_rng_state(_state_tensor(state))


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


def _default_device() -> str:
    return str(torch.get_default_device()) if hasattr(torch, "get_default_device") else ""


def _set_default_device(device: str) -> None:
    torch.set_default_device(device or None)


def _cannot_set_inference_mode(_: bool) -> None:
    from ..restore import CannotRestoreError

    raise CannotRestoreError("inference mode was entered or left in the loop")


def _anomalies() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_anomalies(state: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*state)


DEVICES = ("cpu", "cuda")


def _autocast() -> Any:
    if not hasattr(torch, "get_autocast_dtype"):  # before 2.4: one function for each device
        dtypes = (torch.get_autocast_cpu_dtype(), torch.get_autocast_gpu_dtype())
        return (
            torch.is_autocast_cpu_enabled(),
            torch.is_autocast_enabled(),
            *dtypes,
            torch.is_autocast_cache_enabled(),
        )
    on = tuple(torch.is_autocast_enabled(device) for device in DEVICES)
    return *on, *(torch.get_autocast_dtype(device) for device in DEVICES), torch.is_autocast_cache_enabled()


def _set_autocast(state: Any) -> None:
    cpu, cuda, cpu_dtype, cuda_dtype, cache = state
    if not hasattr(torch, "get_autocast_dtype"):
        torch.set_autocast_cpu_enabled(cpu)
        torch.set_autocast_enabled(cuda)
        torch.set_autocast_cpu_dtype(cpu_dtype)
        torch.set_autocast_gpu_dtype(cuda_dtype)
    else:
        for device, on, dtype in zip(DEVICES, (cpu, cuda), (cpu_dtype, cuda_dtype), strict=True):
            torch.set_autocast_enabled(device, on)
            torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)


def _print_options() -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(vars(torch._tensor_str.PRINT_OPTS).items()))


def _set_print_options(options: tuple[tuple[str, Any], ...]) -> None:
    vars(torch._tensor_str.PRINT_OPTS).update(options)


def _flag(owner: Any, name: str) -> Setting:
    """An attribute; asking for it may fail where older and newer names of one thing were mixed."""

    def read() -> Any:
        try:
            return getattr(owner, name)
        except (RuntimeError, AttributeError):
            return MISSING

    def write(value: Any) -> None:
        if value != MISSING:
            setattr(owner, name, value)

    return Setting(
        f"{owner.__name__ if hasattr(owner, '__name__') else type(owner).__name__}.{name}", read, write
    )


def _quietly(read: Callable[[], Any]) -> Callable[[], Any]:
    def asked() -> Any:
        try:
            return read()
        except RuntimeError:
            return MISSING

    return asked


def _set_precision(precision: Any) -> None:
    if precision != MISSING:
        torch.set_float32_matmul_precision(precision)


def _tables_of_hooks() -> dict[str, Any]:
    """The hooks that are called for every module or optimizer, and those for what modules register."""
    found = {}
    for module in (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"]):
        tables = {name: value for name, value in vars(module).items() if name.startswith("_global_")}
        found.update({name: table for name, table in tables.items() if isinstance(table, dict)})
    return found


def _hooks() -> tuple[Any, ...]:
    """The tables themselves, since handles hold them weakly: their content is restored in place."""
    return tuple(_tables_of_hooks().items())


def _set_hooks(hooks: tuple[Any, ...]) -> None:
    """For a process that had no torch when the loop was entered."""
    tables = _tables_of_hooks()
    for name, found in hooks:
        if name in tables and tables[name] is not found:
            tables[name].clear()
            tables[name].update(found)


TORCH = World(
    "torch",
    [
        Setting("default device", _default_device, _set_default_device),
        Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting("inference mode", torch.is_inference_mode_enabled, _cannot_set_inference_mode),
        Setting("anomaly mode", _anomalies, _set_anomalies),
        Setting("autocast", _autocast, _set_autocast),
        Setting("deterministic", _deterministic, _set_deterministic),
        Setting("matmul precision", _quietly(torch.get_float32_matmul_precision), _set_precision),
        Setting("print options", _print_options, _set_print_options),
        Setting("threads", torch.get_num_threads, torch.set_num_threads, compared=False),
        *(
            _flag(torch.backends.cudnn, name)
            for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
        ),
        _flag(torch.backends.cuda.matmul, "allow_tf32"),
        _flag(torch.utils.deterministic, "fill_uninitialized_memory"),
        Setting("hooks of all modules and optimizers", _hooks, _set_hooks),
        _flag(torch.nn.modules.module, "_global_is_full_backward_hook"),
        _flag(torch.utils.hooks.RemovableHandle, "next_id"),
        Setting("random state", _random_state, _set_random_state),
        Setting("random states of devices", _device_states, _set_device_states),
        Setting("random state of mps", _mps_state, _set_mps_state),
    ],
)
