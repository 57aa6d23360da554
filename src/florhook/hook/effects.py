"""What statements are known to do: print and log, or change the state of the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from .align import active
from .facts import last_name
from .names import FunctionNode, arguments, bound_names, called_name, own_nodes, words

_OUTPUT_FUNCTIONS = frozenset({"print", "pprint", "pp", "display"})
_OUTPUT_METHODS = words(
    "print pprint pp display debug info warning warn error critical exception log log_metric log_metrics log_dict "
    "add_scalar add_scalars add_histogram add_image add_images add_figure add_text "
    "set_postfix set_postfix_str set_description set_description_str"
)
_STREAMS = frozenset({"stdout", "stderr", "__stdout__", "__stderr__", "tqdm", "trange"})
_PLOTTERS = frozenset({"plt", "pyplot"})
_STREAM_METHODS = frozenset({"write", "writelines", "flush"})

# Methods that change their object (or the program's course) wherever they are called.
_MUTATORS = words(
    "backward step zero_grad train eval load_state_dict add_param_group fit partial_fit fit_transform train_on_batch "
    "append appendleft extend extendleft insert pop popleft popitem remove discard clear update setdefault shuffle "
    "seed manual_seed manual_seed_all setstate set_state set_rng_state set_rng_state_all set_default_dtype exit _exit "
    "abort __setattr__ __setitem__ __delattr__ __delitem__ __iadd__"
)
# Methods that do so where the result is thrown away; elsewhere they are mostly another class's pure ones.
_STATEMENT_MUTATORS = words(
    "sort reverse add save write writelines writerow writerows truncate close fill put resize rename unlink mkdir "
    "makedirs rmtree set_grad_enabled set_num_threads set_default_device set_default_tensor_type "
    "use_deterministic_algorithms to cpu cuda half float double bfloat16 share_memory start stop"
)
_CHANGING_FUNCTIONS = frozenset(
    {"seed", "manual_seed", "set_seed", "seed_everything", "shuffle", "exec", "exit", "quit", "input"}
)
_ATTRIBUTE_FUNCTIONS = frozenset({"setattr", "delattr"})
_DRAWS = words(
    "random randint randrange getrandbits choice choices sample uniform gauss normal normalvariate randn rand randperm "
    "permutation permuted multinomial bernoulli integers standard_normal rand_like randn_like randint_like"
)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Name | ast.Attribute


class Program:
    """The functions that one source defines, to tell what a call of them does."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._printing: dict[str, bool] = {}  # by name: whether its definitions only print

    @cached_property
    def _definitions(self) -> dict[str, list[Definition]]:
        found: dict[str, list[Definition]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, FunctionNode):
                found.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and (value := _as_function(node.value)) is not None:
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(value)
        return found

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Every identifier in the source, whatever its role, strings that look like one included."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                found.update(
                    item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)
                )
        return frozenset(found)

    def is_output(self, stmt: ast.stmt) -> bool:
        """Whether a statement does nothing but print or log: a call, or an `if` around such calls."""
        # Not by recursion: an `elif` is an `if` in the `else` of the one before it.
        pending = [stmt]
        while pending:
            inner = pending.pop()
            if isinstance(inner, ast.If):
                pending.extend(active(inner.body + inner.orelse))
            elif not (isinstance(inner, ast.Expr) and self.is_output_call(inner.value)):
                return False
        return True

    def is_output_call(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self.is_output_call(node.elt)
        if isinstance(node, ast.BoolOp):
            return self.is_output_call(node.values[-1])
        if isinstance(node, ast.IfExp):
            arms = [arm for arm in (node.body, node.orelse) if not isinstance(arm, ast.Constant)]
            return bool(arms) and all(map(self.is_output_call, arms))
        return isinstance(node, ast.Call) and self._prints(node.func)

    def _prints(self, func: ast.expr) -> bool:
        name = last_name(func)
        if known := self._definitions.get(name):
            if name not in self._printing:
                self._printing[name] = (
                    False  # as long as it is asked: one that calls itself does more than print
                )
                self._printing[name] = all(map(self._definition_prints, known))
            return self._printing[name]
        if isinstance(func, ast.Name):
            return name in _OUTPUT_FUNCTIONS
        if not isinstance(func, ast.Attribute):
            return False
        receiver = last_name(func.value)
        if name in _STREAM_METHODS:
            return receiver in _STREAMS
        return receiver in _PLOTTERS or (name in _OUTPUT_METHODS and "parser" not in receiver)

    def _definition_prints(self, node: Definition) -> bool:
        if isinstance(node, ast.Lambda):
            return self.is_output_call(node.body)
        if isinstance(node, FunctionNode):
            return bool(active(node.body)) and all(map(self._is_helper, active(node.body)))
        return self._prints(node)

    def _is_helper(self, stmt: ast.stmt) -> bool:
        """What may stand in a function that only prints: `text = ...`, loops and conditions around prints."""
        if isinstance(stmt, ast.Assign):
            names = all(isinstance(target, ast.Name) for target in stmt.targets)
            return names and not list(self.effects(stmt))
        if isinstance(stmt, (ast.For, ast.With)):
            return all(map(self._is_helper, active(stmt.body))) and not list(self.effects(stmt))
        if isinstance(stmt, ast.Return):
            return stmt.value is None or self.is_output_call(stmt.value)
        return self.is_output(stmt)

    def effects(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of a statement that do more than compute a value or print it, as far as is known."""
        for part in ast.walk(node):
            if isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) or (
                isinstance(part, ast.Call) and self._has_effect(part)
            ):
                yield part

    def _has_effect(self, call: ast.Call) -> bool:
        if self.is_output_call(call):
            return False
        name = called_name(call)
        return (
            changes_by_name(call, thrown_away=False)
            or name in _DRAWS
            or advances(call)
            or self.is_impure(name)
        )

    def is_impure(self, name: str, asked: set[str] | None = None) -> bool:
        """Whether a function of this name is defined here and is known to change more than its own variables.

        `asked` are those that this question has led to already: they need no second answer.
        """
        asked = set() if asked is None else asked
        if name in asked:
            return False
        asked.add(name)
        known = (node for node in self._definitions.get(name, ()) if isinstance(node, FunctionNode))
        return any(self._changes_state(node, asked) for node in known)

    def _changes_state(self, function: ast.FunctionDef | ast.AsyncFunctionDef, asked: set[str]) -> bool:
        nodes = list(own_nodes(function))
        own = {name for node in nodes for name in bound_names(node)} - {
            a.arg for a in arguments(function.args)
        }
        return any(self._changes_others(node, own, asked) for node in nodes)

    def _changes_others(self, node: ast.AST, own: set[str], asked: set[str]) -> bool:
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return True
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            return root_name(node) not in own
        if not isinstance(node, ast.Call) or self.is_output_call(node):
            return False
        name = called_name(node)
        if isinstance(node.func, ast.Attribute) and root_name(node.func) in own:
            return False
        return (
            changes_by_name(node, thrown_away=False)
            or name in _DRAWS
            or (isinstance(node.func, ast.Name) and self.is_impure(name, asked))
        )


def _as_function(node: ast.expr) -> Definition | None:
    """What a name stands for after `name = lambda: ...`, `name = print` or `name = partial(print)`."""
    if isinstance(node, (ast.Lambda, ast.Name)):
        return node
    if isinstance(node, ast.Call) and called_name(node) == "partial" and node.args:
        return _as_function(node.args[0])
    return (
        node if isinstance(node, ast.Attribute) and node.attr in _OUTPUT_METHODS | _STREAM_METHODS else None
    )


def changes_by_name(call: ast.Call, *, thrown_away: bool) -> bool:
    """Whether the name of what is called says that it changes its object or its arguments."""
    name = called_name(call)
    if _is_in_place(name):
        return True
    if isinstance(call.func, ast.Name):
        return name in _CHANGING_FUNCTIONS or name in _ATTRIBUTE_FUNCTIONS
    return name in _MUTATORS or (thrown_away and name in _STATEMENT_MUTATORS)


def changed_object(call: ast.Call) -> ast.expr | None:
    """What a call that changes something changes, where that is one object and can be told."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value
    return call.args[0] if call.args and called_name(call) in _ATTRIBUTE_FUNCTIONS else None


def advances(call: ast.Call) -> bool:
    """`next(batches)` moves an iterator that others may hold; `next(iter(x))` moves its own."""
    return (
        isinstance(call.func, ast.Name)
        and call.func.id == "next"
        and bool(call.args)
        and not isinstance(call.args[0], ast.Call)
    )


def root_name(node: ast.expr) -> str:
    """`a` of `a.b[0].c`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_in_place(name: str) -> bool:
    """torch's convention: `add_`, `xavier_uniform_`, but neither `__len__` nor gettext's `_`."""
    return name.endswith("_") and not name.endswith("__") and len(name) > 1
