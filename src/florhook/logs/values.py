"""Named values in a printed line: `loss=0.31`, `loss: 0.31`, `epoch 3 loss 0.31 val acc 97.1%`. Pure.

A value is a number that stands alone and has a name directly before it. What could be read in two ways is no value:
ratios and ranges (`3/10`, `3 of 10`), dates and times of day, versions, addresses, paths, sequences (`[1, 2, 3]`,
`loss 0.3 0.4`, `1,234`), numbers that are a part of a word (`0.5s`, `v1.2`), and numbers without a name.

- Before `=` or `:` stand the words of the name, of which none begins with a digit; quotes around them go
  (`{'loss': 0.31}`).
- Without a sign between them, a name has one to four words. A word such as "at" in front is no part of it (`at epoch
  3` is epoch), one behind it makes it no name (`accuracy of 0.9`, `improved to 0.3`), and "is" and "was" go (`loss is
  0.3`).
- A percent sign is left out: 97.1% is 97.1. `nan` and `inf` are numbers. Of torch's and NumPy's scalars as `repr`
  shows them (`tensor(0.31, grad_fn=...)`, `np.float64(0.31)`) the number is taken.
"""

from __future__ import annotations

import re

Number = int | float

LOOK_BACK = 200  # characters before a number in which its name is looked for
MOST_WORDS = 4  # of a name that no sign ends: more make a sentence
MOST_DIGITS = 300  # of a number

_DIGITS = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_WORDY = r"[-+]?(?:nan|inf|infinity)(?!\w)"  # in any case
_NUMBER = rf"(?:{_DIGITS}|(?i:{_WORDY}))"
_SCALAR = rf"(?:tensor|np\.\w+)\(\s*({_NUMBER})\s*(?:,\s*\w+=[^()]*)?\)"
# Nothing that belongs to it behind it; a full stop may end the sentence.
_ENDS = r"(?!\s?%)(?=$|[\s,;|)\]}>]|:(?:\s|$)|\.(?:\s|$))"
# Another number joined to it makes both parts of something else.
_JOINS = r"(?:,|/|\*|×|\.\.\.?|–|-|±|\+/-|\bx\b|\bof\b|\bto\b|\band\b)"
_ALONE = rf"(?!\s*{_JOINS}\s*{_NUMBER}(?![^\W\d])|\s+{_NUMBER}(?!\w))"
_VALUE = re.compile(rf"(?<![^\s:=])(?:({_NUMBER})(?:\s?%)?|{_SCALAR}){_ENDS}{_ALONE}")

_WORD = r"(?!(?i:nan|inf|infinity)\b)[^\W\d]\w*(?:[./@#^-]\w+)*"
_WORDS = rf"{_WORD}(?: {_WORD})*"
_BEFORE = r"(?:^|(?<=[\s,;|()\[\]{}:=>]))"
_WITH_SIGN = re.compile(rf"{_BEFORE}(?:({_WORDS})|(['\"])([^'\"]+)\2)\s*([:=])(\s*)$")
_WITHOUT_SIGN = re.compile(rf"{_BEFORE}({_WORDS})\s+$")

# Words that name nothing, by kind: of grammar, of logging; verbs between a name and its number; units; months.
_NO_NAMES = set(
    """
    a an the of to in on at from by for with than and or as per after before over under until x no vs
    DEBUG INFO WARNING WARN ERROR CRITICAL
    """.split()  # noqa: SIM905  so it reads like a list of words
)
_COPULAS = {"is", "was", "are", "were", "now"}
_UNITS = {
    *(
        "s",
        "sec",
        "secs",
        "second",
        "seconds",
        "ms",
        "us",
        "min",
        "mins",
        "minute",
        "minutes",
        "h",
        "hour",
        "hours",
    ),
    *("B", "KB", "MB", "GB", "it/s"),
}
_MONTHS = {
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "january"),
    *("february", "march", "april", "june", "july", "august", "september", "october", "november", "december"),
}
_DEVICES = re.compile(r"(?:.* )?(?:cuda|cpu|gpu|mps|xpu|npu|hpu|localhost|.*\.\w+)", re.IGNORECASE)


def values_in(line: str) -> list[tuple[str, Number]]:
    """The named values of a line, from left to right; a name may come twice."""
    found = []
    for match in _VALUE.finditer(line):
        text = match[1] or match[2]
        name = _name_before(line, match.start(), text)
        if name and not (text[-1].isalpha() and _is_word_of_a_sentence(line, match)):
            found.append((name, _number(text)))
    return found


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _name_before(line: str, end: int, number: str) -> str:
    """The name that ends there, "" where there is none or it is not clear."""
    if len(number) > MOST_DIGITS:
        return ""
    start = max(0, end - LOOK_BACK)
    if match := _WITH_SIGN.search(line, start, end):
        if match[2]:
            return match[3].strip()
        is_place = match[4] == ":" and not match[5] and number.isdigit() and _DEVICES.fullmatch(match[1])
        return "" if is_place else " ".join(_less_the_front(match[1].split(), line[start : match.start()]))
    match = _WITHOUT_SIGN.search(line, start, end)
    return "" if match is None else _plain_name(match[1].split(), line[start : match.start()])


def _plain_name(words: list[str], before: str) -> str:
    """The name that words directly before a number make."""
    words = _less_the_front(words, before)
    while words and words[-1] in _COPULAS:
        words.pop()
    if not words or len(words) > MOST_WORDS or words[-1] in _NO_NAMES:
        return ""
    last = words[-1].lower()
    is_file = any("/" in word and "." in word.rpartition("/")[2] for word in words)
    return "" if last in _MONTHS or last == "version" or is_file else " ".join(words)


def _less_the_front(words: list[str], before: str) -> list[str]:
    """Words without those in front that name nothing: `at`, a log level, the unit of the number before."""
    behind_a_number = re.search(r"\d\s+$", before) is not None
    while len(words) > 1 and (words[0] in _NO_NAMES or (behind_a_number and words[0] in _UNITS)):
        words, behind_a_number = words[1:], False
    return words


def _is_word_of_a_sentence(line: str, match: re.Match[str]) -> bool:
    """Whether `nan` stands in a text (`found nan in the gradients`) rather than for a value."""
    if line[: match.start()].rstrip()[-1:] in (":", "="):
        return False
    rest = re.match(rf"\s*({_WORDS})?\s*", line[match.end() :])
    follows = "" if rest is None or rest[1] is None else rest[1].split()[0]
    if not follows:
        return False
    return follows in _NO_NAMES or re.search(r"[0-9]|(?i:\bnan\b|\binf\b)", line[match.end() :]) is None
