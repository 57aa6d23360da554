"""State: torch's less common tensors and objects, and its settings."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Flor
from test_state import Session, carried, round_trip

from florhook.state.kinds import load_imported
from florhook.state.kinds import settings as worlds
from florhook.state.kinds.base import Missing
from florhook.state.restore import CannotRestoreError

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytestmark = pytest.mark.needs_torch


# Tensors -------------------------------------------------------------------------------------------------------

SPARSE: dict[str, Callable[[Any], Any]] = {
    "coo": lambda dense: dense.to_sparse(),
    "csr": lambda dense: dense.to_sparse_csr(),
    "csc": lambda dense: dense.to_sparse_csc(),
    "bsr": lambda dense: dense.to_sparse_bsr((2, 2)),
    "bsc": lambda dense: dense.to_sparse_bsc((2, 2)),
}


def test_the_first_optimizer_of_a_class_may_come_from_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `__init__` wraps the class's `step`, which a scheduler that is made after the restore then wraps again."""
    kind = torch.optim.Rprop
    step = kind.step
    plain = step.__wrapped__ if getattr(step, "hooked", False) else step
    monkeypatch.setattr(kind, "step", plain)
    session = Session({"opt": None, "net": torch.nn.Linear(2, 1)})
    net = session.state["net"]
    session.state["opt"] = kind(net.parameters(), lr=0.1)
    assert getattr(kind.step, "hooked", False)
    kept = session.capture()
    monkeypatch.setattr(kind, "step", plain)  # as in a process that has made none
    session.state["opt"] = None
    session.restore(kept)
    assert getattr(kind.step, "hooked", False)
    assert session.state["opt"].param_groups[0]["params"][0] is net.weight


@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors(layout: str) -> None:
    """Old ones keep their identity, whether values changed or the whole pattern; new ones are made."""
    make = SPARSE[layout]

    def start() -> dict[str, Any]:
        old = make(torch.eye(40))
        return {"old": old, "same": old, "other": make(torch.eye(40))}

    def change(s: dict[str, Any]) -> None:
        s["old"].mul_(3)
        if layout == "coo":
            s["other"].add_(make(torch.ones(40, 40)))
        s["new"] = make(torch.arange(64.0).reshape(8, 8))
        s["values"] = s["new"]._values() if layout == "coo" else s["new"].values()

    expected = start()
    change(expected)
    state = carried(start, change)
    assert state["old"] is state["same"]
    for name in ("old", "other", "new"):
        assert torch.equal(state[name].to_dense(), expected[name].to_dense()), name
        assert state[name].layout is expected[name].layout
    state["values"][0] = -5
    assert state["new"].to_dense().min() == -5


def test_sparse_gradients() -> None:
    """An embedding's gradient, and the optimizer that takes it."""

    def make() -> dict[str, Any]:
        torch.manual_seed(1)
        net = torch.nn.Embedding(30, 5, sparse=True)
        return {"net": net, "opt": torch.optim.SparseAdam(net.parameters()), "dense": torch.nn.Linear(2, 2)}

    def change(s: dict[str, Any]) -> None:
        s["net"](torch.tensor([1, 2, 1])).sum().backward()
        s["opt"].step()

    expected = make()
    change(expected)
    state = carried(make, change)
    assert state["net"].weight.grad.layout is torch.sparse_coo
    for s in (state, expected):
        s["opt"].step()
    assert torch.equal(state["net"].weight, expected["net"].weight)
    session = Session(make())
    kept = session.capture()
    change(session.state)
    session.restore(kept)
    assert session.state["net"].weight.grad is None


@pytest.mark.filterwarnings("ignore:Sparse")
def test_memory_behind_sparse_tensors_that_nobody_sees() -> None:
    """What lies behind the values is no state, unless something else shows it."""

    def make(fill: float, keep: bool) -> Session:
        values = torch.full((900,), fill)
        values[:3] = 1
        indices = torch.arange(3).repeat(2, 1)
        session = Session({"s": torch.sparse_coo_tensor(indices, values[:3], (5, 5))})
        session.state["k"] = values if keep else None
        return session

    assert make(2, False).bytes() == make(3, False).bytes()
    assert make(2, True).bytes() != make(3, True).bytes()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_memory_between_the_rows_of_sparse_indices() -> None:
    """A sum of sparse tensors makes room for all entries in each row of the indices, and fills less of it."""
    streams = []
    for fill in (5, 6):
        indices = torch.full((2, 4), fill)
        indices[:, :2] = torch.tensor([[0, 1], [1, 0]])
        sparse = torch.sparse_coo_tensor(indices[:, :2], torch.ones(2), (3, 3))
        assert sparse._indices().stride() == (4, 1)
        del indices
        streams.append(Session({"s": sparse}).bytes())
    assert streams[0] == streams[1]


@pytest.mark.parametrize(
    ("shape", "stride"),
    [
        ((2, 2), (4, 1)),
        ((3, 2, 2), (1, 9, 40)),
        ((4, 5), (5, 1)),
        ((2, 3), (0, 2)),
        ((2, 0), (1, 1)),
        ((), ()),
    ],
)
def test_what_a_strided_tensor_shows(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """By hand: each index times each stride."""
    from florhook.state.kinds.torch_kinds import stretches

    shown = {sum(map(operator.mul, at, stride)) for at in itertools.product(*map(range, shape))}
    assert {place for start, end in stretches(shape, stride) for place in range(start, end)} == shown


FUNCTIONS = """
import torch
class Layer:
    def __init__(self, act): self.act = act
total = 0.0
for epoch in range(4):
    layer = Layer(torch.tanh if epoch % 2 else torch.relu)
    for step in range(3):
        total += layer.act(torch.tensor([0.5])).item()
"""


def test_functions_of_torch_are_values(flor: Flor) -> None:
    """`torch.tanh` is a static method of a class in C: after a jump it is the very one."""
    flor.write("train.py", FUNCTIONS)
    flor("train.py", FLOR_EPSILON="inf")
    flor.write(
        "train.py", FUNCTIONS + "print('@@', layer.act is torch.tanh, layer.act(torch.zeros(1)).item())\n"
    )
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "@@ True 0.0\n", "")
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] == 4


def lazy_net() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.LazyBatchNorm1d(), torch.nn.LazyLinear(2))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_modules() -> None:
    """Uninitialised ones, ones that were initialised since the entry, and back."""

    def make() -> dict[str, Any]:
        net = lazy_net()
        return {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)}

    def change(s: dict[str, Any]) -> None:
        torch.manual_seed(2)
        s["net"](torch.ones(3, 5)).sum().backward()
        s["opt"].step()

    expected = make()
    change(expected)
    state = carried(make, change)
    assert type(state["net"][0]) is torch.nn.Linear
    weight = state["net"][0].weight
    assert (type(weight), state["opt"].param_groups[0]["params"][0] is weight) == (torch.nn.Parameter, True)
    for name, value in expected["net"].state_dict().items():
        assert torch.equal(state["net"].state_dict()[name], value), name

    session = Session(make())
    kept = session.capture()
    change(session.state)
    session.restore(kept)
    net = session.state["net"]
    assert type(net[0]) is torch.nn.LazyLinear
    assert type(net[0].weight) is torch.nn.parameter.UninitializedParameter
    change(session.state)
    for name, value in expected["net"].state_dict().items():
        assert torch.equal(net.state_dict()[name], value), name
    assert torch.equal(
        carried(dict, lambda s: s.update(make()))["net"](torch.ones(2, 3)), lazy_net()(torch.ones(2, 3))
    )


class Counted(torch.Tensor):  # type: ignore[misc]
    """Counts what is done to it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs)


def test_subclasses_of_tensors() -> None:
    """Class and attributes, gradients under one identity; reading one runs none of its code."""

    def make() -> dict[str, Any]:
        return {"t": torch.arange(5.0).as_subclass(Counted).requires_grad_()}

    def change(s: dict[str, Any]) -> None:
        (s["t"] * 2).sum().backward()
        s["grad"], s["t"].tag = torch.Tensor.grad.__get__(s["t"]), ["tag"]  # type: ignore[attr-defined]
        s["new"] = torch.ones(300).as_subclass(Counted)

    state = carried(make, change)
    assert (type(state["t"]), state["t"].tag, state["new"].sum().item()) == (Counted, ["tag"], 300)
    assert state["grad"].tolist() == [2.0] * 5
    session, before = Session(state), Counted.calls
    session.capture()
    assert Counted.calls == before


def test_lazily_conjugated_and_negated_tensors() -> None:
    """Flags of a view that no stride shows."""
    old = torch.tensor([1 + 2j, 3j])

    def change(s: dict[str, Any]) -> None:
        s["conj"], s["imag"] = old.conj(), old.conj().imag

    state = round_trip({"old": old}, change, lambda s: s.clear())
    assert (state["conj"].is_conj(), state["imag"].is_neg()) == (True, True)
    assert state["conj"].tolist() == [1 - 2j, -3j]
    assert state["imag"].tolist() == [-2.0, -3.0]
    state["old"][0] = 7j
    assert state["conj"][0] == -7j


@pytest.mark.parametrize("form", ["quantized", "nested", "jagged", "mkldnn", "zero", "fake"])
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_cannot_be_captured(form: str) -> None:
    """Found unchanged, or no checkpoint; new ones are placeholders. Never an error."""
    from torch._subclasses import FakeTensorMode

    make = {
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "mkldnn": lambda: torch.ones(2, 3).to_mkldnn(),
        "zero": lambda: torch._efficientzerotensor(3),
        "fake": lambda: FakeTensorMode().from_tensor(torch.ones(3)),
    }[form]
    old = make()
    session = Session({"old": old})
    session.state["new"] = make()
    blockers = session.scan().blockers(session.entry)
    if form in ("quantized", "nested"):
        assert blockers == []
    if not blockers:
        session.restore(session.capture())
        assert session.state["old"] is old
        assert type(session.state["new"]) is Missing


def test_inference_tensors() -> None:
    """They stay such, old and new."""
    with torch.inference_mode():
        old = torch.ones(3)

    def change(s: dict[str, Any]) -> None:
        with torch.inference_mode():
            old.add_(1)
            s["new"] = torch.zeros(2)

    def spoil(s: dict[str, Any]) -> None:
        with torch.inference_mode():
            old.zero_()

    state = round_trip({"old": old}, change, spoil)
    assert (state["new"].is_inference(), old.tolist()) == (True, [2.0] * 3)


# Memory that is shared with others -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["array first", "tensor first"])
def test_memory_of_arrays_and_tensors_born_since(order: str) -> None:
    """Whoever owns it, and whoever is met first: what one writes the other reads."""

    def change(s: dict[str, Any]) -> None:
        array, tensor = np.arange(600.0), torch.arange(600.0)
        pairs = {"a": array, "at": torch.from_numpy(array[10:]), "t": tensor, "ta": tensor[5:].numpy()}
        data = bytearray(range(256)) * 4
        pairs |= {
            "b": data,
            "bt": torch.frombuffer(data, dtype=torch.uint8),
            "ba": np.frombuffer(data, np.uint8),
        }
        s.update(pairs if order == "array first" else reversed(pairs.items()))

    state = carried(dict, change)
    assert (state["at"][0].item(), state["ta"][0]) == (10.0, 5.0)
    state["a"][10], state["t"][5], state["b"][3] = -1, -2, 77
    assert (state["at"][0].item(), state["ta"][0]) == (-1, -2)
    assert (state["bt"][3].item(), state["ba"][3]) == (77, 77)
    state["at"][1], state["ta"][1] = -3, -4
    assert (state["a"][11], state["t"][6].item()) == (-3, -4)


def test_tensors_over_memory_that_is_only_read(tmp_path: Any) -> None:
    """Restoring writes nothing where nothing has changed: it would be the end of the process."""
    np.arange(999, dtype=np.int32).tofile(tmp_path / "data")
    with pytest.warns(UserWarning, match="not writable"):
        tensor = torch.from_numpy(np.memmap(tmp_path / "data", dtype=np.int32, mode="r"))
    session = Session({"t": tensor})
    session.restore(session.capture())
    assert session.state["t"][998].item() == 998


# Training ------------------------------------------------------------------------------------------------------


def regression(torch_optimizer: Callable[[Any], Any]) -> dict[str, Any]:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    x = torch.randn(16, 4)
    return {"net": net, "opt": torch_optimizer(net), "x": x, "y": x.sum(1, keepdim=True)}


def fit(s: dict[str, Any]) -> None:
    def closure() -> Any:
        s["opt"].zero_grad()
        loss = (s["net"](s["x"]) - s["y"]).square().mean()
        loss.backward()
        return loss

    s["opt"].step(closure)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "lbfgs": lambda net: torch.optim.LBFGS(net.parameters(), max_iter=4),
    "groups": lambda net: torch.optim.Adam([{"params": net[0].parameters(), "lr": 1}, {"params": net[2].parameters()}]),
    "fused": lambda net: torch.optim.AdamW(net.parameters(), fused=True),
    "foreach": lambda net: torch.optim.RMSprop(net.parameters(), foreach=True, momentum=0.5),
    "rprop": lambda net: torch.optim.Rprop(net.parameters()),
    "asgd": lambda net: torch.optim.ASGD(net.parameters()),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_go_on_as_recorded(name: str) -> None:
    """State of every kind, groups added since included."""

    def make() -> dict[str, Any]:
        return regression(OPTIMIZERS[name])

    def change(s: dict[str, Any]) -> None:
        fit(s)
        if name == "groups":
            s["extra"] = torch.nn.Parameter(torch.ones(2))
            s["opt"].add_param_group({"params": [s["extra"]], "lr": 0.5})
        fit(s)

    expected = make()
    change(expected)
    state = carried(make, change)
    for s in (expected, state):
        fit(s)
    for one, two in zip(expected["net"].parameters(), state["net"].parameters(), strict=True):
        assert torch.equal(one, two)
    if name == "groups":
        assert state["opt"].param_groups[2]["params"][0] is state["extra"]


def test_averages_scalers_and_hooks() -> None:
    """SWA, EMA, GradScaler; hooks on modules, tensors and accumulated gradients run as registered."""
    ema = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)

    def make() -> dict[str, Any]:
        s = regression(lambda net: torch.optim.SGD(net.parameters(), lr=0.1))
        s["swa"] = torch.optim.swa_utils.AveragedModel(s["net"])
        s["ema"] = torch.optim.swa_utils.AveragedModel(s["net"], multi_avg_fn=ema)
        s["scaler"] = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        s["seen"] = []
        return s

    def change(s: dict[str, Any]) -> None:
        seen, net = s["seen"], s["net"]
        s["handles"] = [
            net[0].register_forward_hook(lambda *_: seen.append("forward")),
            net[0].weight.register_hook(lambda grad: seen.append("gradient")),
            net[2].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated")),
        ]
        for _ in range(3):
            loss = (net(s["x"]) - s["y"]).square().mean()
            s["scaler"].scale(loss).backward()
            s["scaler"].step(s["opt"])
            s["scaler"].update()
            s["swa"].update_parameters(net)
            s["ema"].update_parameters(net)

    def more(s: dict[str, Any]) -> list[Any]:
        s["seen"].clear()
        loss = (s["net"](s["x"]) - s["y"]).square().mean()
        s["scaler"].scale(loss).backward()
        seen = sorted(s["seen"])
        for handle in s["handles"]:
            handle.remove()
        s["net"](s["x"])
        averages = [p.tolist() for name in ("swa", "ema") for p in s[name].parameters()]
        return [
            seen,
            len(s["seen"]),
            averages,
            s["scaler"].get_scale(),
            s["scaler"].state_dict(),
            int(s["swa"].n_averaged),
        ]

    expected = make()
    change(expected)
    state = carried(make, change)
    found = more(state)
    assert found == more(expected)
    assert found[:2] == [["accumulated", "forward", "gradient"], 3 + 1 - 1]
    assert found[3] == 32.0


@pytest.mark.filterwarnings("ignore")
def test_scripted_modules() -> None:
    """Their tensors lie in C++: also those that no optimizer holds."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.norm(x)

    def make() -> dict[str, Any]:
        return {"net": torch.jit.trace(Net(), torch.zeros(2, 3))}

    def change(s: dict[str, Any]) -> None:
        s["net"].train()
        s["net"](torch.arange(6.0).reshape(2, 3))
        with torch.no_grad():
            s["net"].norm.weight.fill_(5)

    expected = make()
    change(expected)
    state = carried(make, change)
    for name, value in expected["net"].state_dict().items():
        assert torch.equal(state["net"].state_dict()[name], value), name


# Settings ------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[dict[str, Any]]:
    load_imported()
    world = worlds.WORLDS["torch"]
    compared, others = world.read(compared=True), world.read(compared=False)
    yield {"torch": world}
    world.write(compared)
    world.write(others)


def test_settings_of_torch(world: dict[str, Any]) -> None:
    """Each one is as recorded, and so are the random states, drawn last."""
    generator = torch.Generator().manual_seed(4)

    def change(s: dict[str, Any]) -> None:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("medium")
        torch.set_printoptions(precision=1)
        torch.set_autocast_enabled("cpu", True)
        torch.set_autocast_dtype("cpu", torch.float16)
        torch.autograd.set_detect_anomaly(True)
        torch.manual_seed(9)
        torch.rand(3, device="cpu")
        torch.rand(3, generator=generator, device="cpu")

    def spoil(s: dict[str, Any]) -> None:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.set_num_threads(2)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
        torch.set_float32_matmul_precision("highest")
        torch.set_printoptions(profile="default")
        torch.set_autocast_enabled("cpu", False)
        torch.autograd.set_detect_anomaly(False)
        torch.rand(1)
        torch.rand(1, generator=generator)

    round_trip({**world, "generator": generator}, change, spoil)
    assert torch.empty(1).device.type == "meta"
    drawn = (torch.rand(2, device="cpu").tolist(), torch.rand(2, generator=generator, device="cpu").tolist())
    torch.set_default_device(None)
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()) == (
        torch.float64,
        False,
        1,
    )
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert (torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()) == (True, "medium")
    assert str(torch.tensor([1 / 3], dtype=torch.float64)) == "tensor([0.3])"
    assert (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")) == (True, torch.float16)
    assert torch.is_anomaly_enabled()
    torch.manual_seed(9)
    torch.rand(3)
    again = torch.Generator().manual_seed(4)
    torch.rand(3, generator=again)
    assert drawn == (torch.rand(2).tolist(), torch.rand(2, generator=again).tolist())


def test_a_default_device_does_not_reach_a_restore(world: dict[str, Any]) -> None:
    """Empty tensors are made where their storages are, whatever the program's default is."""
    torch.set_default_device("meta")
    state: dict[str, Any] = {}
    session = Session(state)
    state.update(t=torch.ones(400, device="cpu"), g=torch.Generator("cpu").manual_seed(1))
    session.restore(session.capture())
    assert (state["t"].device.type, state["t"].sum().item()) == ("cpu", 400)


def test_inference_mode_cannot_be_entered_by_a_restore(world: dict[str, Any]) -> None:
    """It ends with a `with` statement: the loop is executed instead."""
    session = Session(dict(world))
    kept = session.capture()
    with torch.inference_mode(), pytest.raises(CannotRestoreError, match="inference mode"):
        session.restore(kept)


def test_copies_of_generators_draw_alike() -> None:
    """A generator of torch that was made in the loop."""
    state = carried(dict, lambda s: s.update(g=torch.Generator().manual_seed(5)))
    assert (
        torch.rand(2, generator=state["g"]).tolist()
        == torch.rand(2, generator=torch.Generator().manual_seed(5)).tolist()
    )
