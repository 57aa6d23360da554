"""The import finder: which modules it touches, and that nobody can tell otherwise."""

from __future__ import annotations

import importlib
import importlib.util
import os
import py_compile
import subprocess
import sys
import textwrap
import threading
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from florhook.hook import finder as finder_module
from florhook.hook.finder import Finder, install
from florhook.hook.scope import Decision, Scope

Transform = Callable[[bytes, str, str], "CodeType | None"]

ROOT = Path(__file__).resolve().parent.parent


def marking(source: bytes, path: str, name: str) -> CodeType:
    return compile(source + b"\n__marked__ = __name__\n", path, "exec", dont_inherit=True)


class Project:
    """A folder on `sys.path` whose modules are the user's, and the finder that is to see them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str = "value = 1\n") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()
        return path

    def install(self, transform: Transform = marking) -> Finder:
        return install(Scope(str(self.folder), str(self.folder)), transform)

    def bytecode(self) -> set[Path]:
        return set(self.folder.rglob("*.pyc"))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Project(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def marked(module: ModuleType) -> bool:
    return vars(module).get("__marked__") == module.__name__


def test_the_users_modules_are_transformed(project: Project) -> None:
    """Modules, packages and their submodules get the transformed code; the transform is told source, path and name."""
    project.write("ours/__init__.py")
    file = project.write("ours/deep.py", "x = 'é'\r\n")
    calls = []

    def transform(source: bytes, path: str, name: str) -> CodeType:
        calls.append((source, path, name))
        return marking(source, path, name)

    project.install(transform)
    module = importlib.import_module("ours.deep")
    assert marked(module)
    assert marked(sys.modules["ours"])
    assert calls[1] == (file.read_bytes(), str(file), "ours.deep")


def test_a_transformed_module_looks_like_any_other(project: Project) -> None:
    """Spec, loader and attributes are of the usual types, and the loader gives plain code and source when asked."""
    path = project.write("plain.py")
    project.install()
    module = importlib.import_module("plain")
    spec = module.__spec__
    assert spec is not None
    assert type(spec.loader) is type(module.__loader__) is SourceFileLoader
    assert vars(spec.loader) == {"name": "plain", "path": str(path)}
    assert spec.loader == SourceFileLoader("plain", str(path))
    assert (spec.cached, module.__file__) == (importlib.util.cache_from_source(str(path)), str(path))
    assert spec.loader.get_source("plain") == "value = 1\n"
    code = spec.loader.get_code("plain")
    assert code is not None
    assert "__marked__" not in code.co_names


def test_no_bytecode_is_written_or_read(project: Project) -> None:
    """Instrumented code never meets the user's .pyc files, in either direction."""
    project.write("cached.py")
    importlib.import_module("cached")
    plain = {path: path.read_bytes() for path in project.bytecode()}
    assert len(plain) == 1
    del sys.modules["cached"]
    project.install()
    assert marked(importlib.import_module("cached"))
    project.write("fresh.py")
    assert marked(importlib.import_module("fresh"))
    assert {path: path.read_bytes() for path in project.bytecode()} == plain


def test_a_transform_may_decline(project: Project) -> None:
    """None means: run it as it is, without a word, with the usual caching."""
    project.write("declined.py")
    project.install(lambda source, path, name: None)
    module = importlib.import_module("declined")
    assert module.value == 1
    assert len(project.bytecode()) == 1


def test_a_failing_transform_costs_one_line(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The module runs as it is and stderr says why it is not instrumented."""
    path = project.write("failing.py")

    def transform(source: bytes, path: str, name: str) -> CodeType:
        raise RuntimeError("too\ndeep")

    project.install(transform)
    assert importlib.import_module("failing").value == 1
    expected = f"florhook: could not instrument {path} (RuntimeError: too deep), running it as it is\n"
    assert capsys.readouterr().err == expected


def test_strict_mode_raises(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOR_STRICT=1 is for our own tests."""
    monkeypatch.setenv("FLOR_STRICT", "1")
    project.write("strict.py")

    def transform(source: bytes, path: str, name: str) -> CodeType:
        raise RuntimeError("strict")

    project.install(transform)
    with pytest.raises(RuntimeError, match="strict"):
        importlib.import_module("strict")


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n",
        "import nothing_like_that\n",
        "raise ValueError\n",
        "def f():\n  1/0\nf()\n",
        "import broken.x\n",
    ],
)
def test_failing_imports_show_no_frame_of_ours(project: Project, text: str) -> None:
    """The traceback that the program itself sees, while it runs, is the one without florhook."""
    project.write("broken.py", text)

    def attempt() -> list[tuple[str, str]]:
        sys.modules.pop("broken", None)
        try:
            __import__("broken")
        except Exception as error:
            return [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        raise AssertionError

    plain = attempt()
    project.install()
    assert attempt() == plain


def test_warnings_point_at_the_importer(project: Project) -> None:
    """`stacklevel=2` in a module's body skips our frames as it skips importlib's."""
    project.write("warner.py", "import warnings\nwarnings.warn('old', stacklevel=2)\n")
    importer = project.write("importer.py", "\n\nimport warner\n")
    project.install()
    with pytest.warns(UserWarning, match="old") as caught:
        importlib.import_module("importer")
    assert (caught[0].filename, caught[0].lineno) == (str(importer), 3)


def test_syntax_warnings_are_as_many_as_without(project: Project) -> None:
    """Plain python warns when it compiles, and not when it finds bytecode: so do we."""
    path = project.write("warned.py", "x = 1 is 1\n")
    project.install()
    with pytest.warns(SyntaxWarning) as caught:
        importlib.import_module("warned")
    assert len(caught) == 1
    with pytest.warns(SyntaxWarning):
        py_compile.compile(str(path), doraise=True)
    sys.modules.pop("warned")
    with warnings.catch_warnings(record=True) as none:
        warnings.simplefilter("always")
        assert marked(importlib.import_module("warned"))
    assert none == []
    path.write_text("x = 1 is 1  # changed\n")
    with pytest.warns(SyntaxWarning):
        importlib.reload(sys.modules["warned"])


def test_other_loaders_are_left_alone(project: Project) -> None:
    """Zip files, bytecode, namespace packages, built-in and extension modules, other tools' loaders: all as found."""
    with zipfile.ZipFile(project.folder / "packed.zip", "w") as archive:
        archive.writestr("zipped.py", "value = 1\n")
    sys.path.insert(0, str(project.folder / "packed.zip"))
    project.write("space/inside.py")

    class Special(SourceFileLoader):
        pass

    class Tool:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            if name == "tooled":
                loader = Special(name, str(project.folder / "tooled.py"))
                return importlib.util.spec_from_loader(name, loader)
            return None

    project.write("tooled.py")
    sys.meta_path.insert(0, Tool)  # type: ignore[arg-type]
    ours = project.install()
    modules = {name: importlib.import_module(name) for name in ("zipped", "space", "space.inside", "tooled")}
    assert {name for name, module in modules.items() if marked(module)} == {"space.inside"}
    seen = {name: decision for name, _, decision in ours.seen}
    assert seen["zipped"] == Decision(False, "loaded by zipimporter")
    assert seen["tooled"] == Decision(False, "loaded by Special")
    assert seen["space"] == Decision(False, "no source file")
    assert seen["space.inside"].user


def test_finders_are_asked_in_order_and_only_those_behind(project: Project) -> None:
    """A finder before ours was asked already; the first spec found behind it wins."""
    project.write("found.py")
    asked = []

    class Spy:
        def __init__(self, label: str) -> None:
            self.label = label

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            asked.append((self.label, name))

    project.install()
    sys.meta_path.insert(0, Spy("before"))
    sys.meta_path.insert(2, Spy("after"))
    assert marked(importlib.import_module("found"))
    assert asked == [("before", "found"), ("after", "found")]


def test_editable_finders_behind_the_path_are_seen(project: Project, tmp_path: Path) -> None:
    """What only a finder after PathFinder knows, as setuptools' editable ones, is instrumented too."""
    flat = project.write("elsewhere/flatpkg/__init__.py")

    class Editable:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            return importlib.util.spec_from_file_location(name, flat) if name == "flatpkg" else None

    sys.meta_path.append(Editable)  # type: ignore[arg-type]
    project.install()
    assert PathFinder.find_spec("flatpkg") is None
    assert marked(importlib.import_module("flatpkg"))


def test_reload_transforms_again(project: Project) -> None:
    """The new source is what counts."""
    path = project.write("again.py")
    project.install()
    module = importlib.import_module("again")
    path.write_text("value = 22\n")
    del vars(module)["__marked__"]
    importlib.reload(module)
    assert (module.value, marked(module)) == (22, True)


def test_looking_for_a_spec_transforms_nothing(project: Project) -> None:
    """`importlib.util.find_spec` neither recurses nor pays for the rewriting."""
    project.write("looked.py")

    def transform(source: bytes, path: str, name: str) -> CodeType:
        raise AssertionError

    project.install(transform)
    spec = importlib.util.find_spec("looked")
    assert spec is not None
    assert spec.origin == str(project.folder / "looked.py")
    assert importlib.util.find_spec("nothing_like_that") is None


def test_a_lazy_loader_works(project: Project) -> None:
    """Loaders that wrap the one found get the transformed code when the module is first used."""
    project.write("lazy.py")
    project.install()
    spec = importlib.util.find_spec("lazy")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lazy"] = module
    spec.loader.exec_module(module)
    assert module.value == 1
    assert marked(module)


def test_eight_threads_may_import_at_once(project: Project) -> None:
    """Each module is transformed once, whoever comes first."""
    names = [f"module_{number}" for number in range(40)]
    for name in names:
        project.write(f"{name}.py", "import time\ntime.sleep(0.001)\n")
    calls = []

    def transform(source: bytes, path: str, name: str) -> CodeType:
        calls.append(name)
        return marking(source, path, name)

    project.install(transform)
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for name in names[offset:] + names[:offset]:
                assert marked(importlib.import_module(name))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(5 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(calls) == sorted(names)


def test_a_cleared_meta_path_means_fewer_probes_and_no_error(project: Project) -> None:
    """The program may do with `sys.meta_path` what it likes."""
    project.write("first.py")
    project.write("second.py")
    ours = project.install()
    others = [finder for finder in sys.meta_path if finder is not ours]
    assert marked(importlib.import_module("first"))
    assert ours.find_spec("second") is not None
    sys.meta_path[:] = []
    assert ours.find_spec("second") is None
    sys.meta_path[:] = others
    assert not marked(importlib.import_module("second"))


def test_uninstall_takes_only_ours_away(project: Project) -> None:
    """What else the program put into `sys.meta_path` stays."""
    before = list(sys.meta_path)
    ours = project.install()
    assert sys.meta_path[0] is ours
    ours.uninstall()
    assert sys.meta_path == before


def test_the_hook_imports_nothing_while_it_works(project: Project) -> None:
    """With a standard library that can no longer be imported, the user's modules still are."""
    project.write("alone.py")
    code = f"""
        import sys
        from florhook.hook.finder import install
        from florhook.hook.scope import Scope
        compiled = lambda source, path, name: compile(source + b"marked = 1", path, "exec")
        install(Scope({str(project.folder)!r}, {str(project.folder)!r}), compiled)
        sys.path[:] = [{str(project.folder)!r}]
        keep = ("florhook", "sys", "builtins", "_", "marshal", "posix", "time", "zipimport", "encodings", "codecs")
        keep += ("threading",)  # the interpreter needs it to shut down
        for name in list(sys.modules):
            if not name.startswith(keep):
                sys.modules[name] = None
        import alone
        print(alone.marked)
    """
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "FLOR_STRICT": "1"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_resources_and_packages_work(project: Project) -> None:
    """`importlib.resources` and `pkgutil` are served by the loader as ever."""
    import importlib.resources
    import pkgutil

    project.write("data/__init__.py")
    project.write("data/words.txt", "words")
    project.install()
    package = importlib.import_module("data")
    assert marked(package)
    assert importlib.resources.files(package).joinpath("words.txt").read_text() == "words"
    assert pkgutil.get_data("data", "words.txt") == b"words"


def test_the_finder_reports_to_a_closed_stderr_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody to tell is no error."""
    monkeypatch.setattr(sys, "stderr", None)
    report: Callable[[str, BaseException], None] = finder_module.report
    report("file.py", ValueError())
