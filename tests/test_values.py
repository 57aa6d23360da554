"""Named values in printed lines: what is formatted is found again, and nothing is guessed."""

from __future__ import annotations

import datetime
import ipaddress
import json
import math
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from florhook.logs.values import Number, values_in

# Words that nothing in the parser knows: every one begins with a letter that none of its own words begins with.
WORDS = st.from_regex(r"[klqz][a-z0-9_]{1,8}", fullmatch=True)
NAMES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.floats(-1e6, 1e6).map("{:.4f}".format),
    st.floats(-1e6, 1e6).map("{:.3e}".format),
    st.floats(0, 100).map("{:.1f}%".format),
    st.floats(0, 100).map("{:.1f} %".format),
)
STYLES = ["{}={}", "{} = {}", "{}: {}", "{}:\t{}", "{} {}", "{}\t{}", "'{}': {}", "({}: {})", "[{} {}]"]


def value_of(text: str) -> float:
    return float(text.replace("%", ""))


def same(found: list[tuple[str, Number]], expected: list[tuple[str, float]]) -> bool:
    return len(found) == len(expected) and all(
        name == other and (value == wanted or (math.isnan(value) and math.isnan(wanted)))
        for (name, value), (other, wanted) in zip(found, expected, strict=True)
    )


@given(
    st.lists(st.tuples(NAMES, NUMBERS), min_size=1, max_size=5),
    st.sampled_from(STYLES),
    st.sampled_from([", ", " | ", "; ", "\t| ", " - "]),
)
def test_what_is_formatted_is_found_again(pairs: list[tuple[str, str]], style: str, between: str) -> None:
    """In each style, several a line, whatever stands between them."""
    line = between.join(style.format(name, number) for name, number in pairs)
    assert same(values_in(line), [(name, value_of(number)) for name, number in pairs])


@given(st.lists(st.tuples(NAMES, NUMBERS), min_size=1, max_size=5))
def test_a_space_between_is_enough(pairs: list[tuple[str, str]]) -> None:
    """`epoch 3 loss 0.31 val acc 0.97`, and the same with signs."""
    for style in ("{} {}", "{}={}", "{}: {}"):
        line = " ".join(style.format(name, number) for name, number in pairs)
        assert same(values_in(line), [(name, value_of(number)) for name, number in pairs])


@given(st.dictionaries(NAMES, st.one_of(st.integers(), st.floats()), min_size=1, max_size=5))
def test_dicts_and_json(values: dict[str, float]) -> None:
    """As a Trainer prints them."""
    expected = list(values.items())
    assert same(values_in(str(values)), expected)
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    assert same(values_in(json.dumps(finite)), [each for each in expected if math.isfinite(each[1])])


@given(NAMES, st.lists(NUMBERS, min_size=2, max_size=4))
def test_sequences_have_no_names(name: str, numbers: list[str]) -> None:
    """Neither lists and tuples nor numbers in a row."""
    for before, between, after in (
        ("[", ", ", "]"),
        ("(", ", ", ")"),
        ("", " ", ""),
        ("", ", ", ""),
        ("", "/", ""),
    ):
        line = f"{name} {before}{between.join(numbers)}{after}"
        assert values_in(line) == []


@given(st.text(string.digits + " .,:;/-+[]()%=<>|eE", max_size=60))
def test_numbers_alone_have_no_names(line: str) -> None:
    """Without a word there is no name; the only words here begin with an e."""
    assert [value for name, value in values_in(line) if name[:1] not in ("e", "E")] == []


@given(
    NAMES,
    st.datetimes(),
    st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%H:%M", "%H:%M:%S", "%Y-%m-%dT%H:%M"]),
)
def test_dates_and_times_are_none(name: str, moment: datetime.datetime, form: str) -> None:
    """Whatever stands before them."""
    assert values_in(f"{name} {moment:{form}}") == []
    assert values_in(f"{name}: {moment:{form}} loss 0.5") == [("loss", 0.5)]


@given(NAMES, st.ip_addresses(v=4), st.integers(0, 65535))
def test_addresses_are_none(name: str, address: ipaddress.IPv4Address, port: int) -> None:
    assert values_in(f"{name} {address}") == []
    assert values_in(f"{name}: {address}:{port}") == []


@given(st.text(max_size=300))
def test_any_text_is_read(line: str) -> None:
    """Names and numbers are pieces of it."""
    for name, value in values_in(line):
        assert name in line
        assert isinstance(value, (int, float))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("epoch 3 loss 0.31 val acc 0.97", {"epoch": 3, "loss": 0.31, "val acc": 0.97}),
        ("Epoch 3/10, loss: 0.312, acc: 97.1%", {"loss": 0.312, "acc": 97.1}),
        ("Test set: Average loss: 0.0431, Accuracy: 9856/10000 (99%)", {"Average loss": 0.0431}),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300039", {"Train Epoch": 1, "Loss": 2.300039}),
        ("Epoch: [3][ 10/500]\tTime 0.045 (0.050)\tLoss 6.9 (6.95)", {"Time": 0.045, "Loss": 6.9}),
        ("{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 1.0}", {"loss": 0.5, "learning_rate": 1e-05, "epoch": 1.0}),
        ("{'loss': [0.1, 0.2], 'n': 3}", {"n": 3}),
        ("100%|####| 10/10 [00:01<00:00, 9.5it/s, loss=0.31]", {"loss": 0.31}),
        ("[INFO] 2024-01-02 12:03:04 loss=0.3", {"loss": 0.3}),
        ("2024-01-02 12:03:04,123 INFO loss 0.3", {"loss": 0.3}),
        ("INFO:root:loss 0.3", {"loss": 0.3}),
        ("loss tensor(0.3123, grad_fn=<NllLossBackward0>) acc np.float64(0.5)", {"loss": 0.3123, "acc": 0.5}),
        ("loss tensor([0.3, 0.4])", {}),
        ("cuda:0 epoch:3 loss:0.31|acc:0.97", {"epoch": 3, "loss": 0.31, "acc": 0.97}),
        ("train/loss 0.3 fc1.w 1e-3 acc@5: .9", {"train/loss": 0.3, "fc1.w": 0.001, "acc@5": 0.9}),
        ("took 5 s loss 0.3", {"took": 5, "loss": 0.3}),
        ("3 loss 0.31 acc 0.97", {"loss": 0.31, "acc": 0.97}),
        ("epoch 3: loss is 0.31.", {"epoch": 3, "loss": 0.31}),
        ("epoch 3 - loss 0.3 - top-5: -3.", {"epoch": 3, "loss": 0.3, "top-5": -3.0}),
        ("best (at epoch 7) 0.3", {"epoch": 7}),
        ("Adam(lr=0.001, betas=(0.9, 0.999), eps=1e-08)", {"lr": 0.001, "eps": 1e-08}),
        ("loss inf, lr: -inf", {"loss": math.inf, "lr": -math.inf}),
        ("a=1,b=2", {"a": 1, "b": 2}),
        ("größe 3 β1=0.9", {"größe": 3, "β1": 0.9}),
        ("found nan in the gradients", {}),
        ("got nan in loss 0.3", {"loss": 0.3}),
        ("the information 7b", {}),
        ("tokens: 1,234,567 or 1.234,5 or 1_000", {}),
        ("a=1,2", {}),
        ("step 3 of 10, from 3 to 5, size 3 x 4, 3 * 4", {}),
        ("improved to 0.3, accuracy of 0.93", {}),
        ("Jan 5 2024, 5 Jan 2024, at 12:30", {}),
        ("version 1.2, torch 2.3.0, v1.2, 2.3.0+cpu", {}),
        ("host 10.0.0.1:8080 http://h:80 ?a=3&b=4 localhost:80", {}),
        ("/data/epoch=3/file ckpt_3.pt epoch=3-step=100.ckpt models/run3.pt 5 train.py:57", {}),
        ("0.5s loss=0.3ms 0x1F=3 x=0x1F x=3j", {}),
        ("a==3 x >= 3 x<3 n+=3 --lr=0.1 $3", {}),
        ("loss 0.3 ± 0.02, loss 0.3+-0.1", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_lines_of_programs(line: str, expected: dict[str, float]) -> None:
    """What people print, and what looks like it; expected by hand."""
    assert values_in(line) == list(expected.items())


def test_whole_numbers_stay_whole() -> None:
    assert [type(value) for _, value in values_in("a=3 b=3.0 c=1e3 d=+7")] == [int, float, float, int]
    assert values_in(f"a={'9' * 5000} b=1") == [("b", 1)]


@pytest.mark.parametrize(
    "piece", ["a ", "1 ", "loss 3 ", "-", "[0.1, ", "a.", " ", "nan ", "x=1,", "tensor(1, a="]
)
def test_long_lines_take_no_time(piece: str) -> None:
    """No line makes the search go over it again and again."""
    began = time.process_time()
    values_in(piece * (40_000 // len(piece)) + "3")
    assert time.process_time() - began < 5
