"""The house keeps its plan, read from the source itself: imports run one way, files stay small, parts take plain options."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "seqloom"
FILES = sorted(SOURCE.rglob("*.py"))

# Each package or top-level module, and what it may import besides itself: packages, or single modules of them. `lazy` is free for all.
BELOW_RUN = {
    "batches",
    "compat",
    "config_source",
    "config_tree",
    "data",
    "decoding",
    "files",
    "python_process",
    "run_files",
    "fused",
    "kernels",
    "layouts",
    "media",
    "measure",
    "models",
    "nn",
    "objectives",
    "text",
    "threads",
}
MAY_IMPORT: dict[str, set[str]] = {
    "compat": set(),
    "errors": set(),
    "config_tree": set(),
    "config_source": {"compat", "config_tree", "run_files"},
    "own_parts": set(),
    "preset_list": {"config_source", "config_tree"},
    "python_process": set(),
    "results": set(),
    "files": set(),
    "kernels": set(),
    "lazy": set(),
    "report": set(),
    "threads": set(),
    "measure": {"files"},
    "world": {"files"},
    "media": {"files", "fused.mel_energies"},
    "text": {"files", "media", "python_process"},
    "data": {"files", "media", "text", "world"},
    "fused": {"kernels"},
    "nn": {"fused"},
    "testing": {"nn", "fused"},
    "models": {"nn"},
    "batches": {"text"},
    "vectors": {"compat", "files", "kernels", "measure", "report", "text", "world"},
    "decoding": {"files", "nn.layer.select", "fused.topk", "threads"},
    "objectives": {"nn", "batches", "decoding", "measure"},
    "layouts": {"config_tree", "files", "models", "nn", "text"},
    "run_config": BELOW_RUN | {"own_parts", "preset_list"},
    "run_files": {"compat", "files", "measure"},
    "run": BELOW_RUN | {"report", "run_config", "run_files"},
    "inference": BELOW_RUN | {"run", "run_config", "run_files"},
    "evaluation": BELOW_RUN | {"run", "run_config", "run_files", "inference"},
    "train": BELOW_RUN
    | {
        "evaluation",
        "inference",
        "preset_list",
        "report",
        "run",
        "run_config",
        "run_files",
        "vectors",
    },
    "runs": BELOW_RUN | {"run", "run_config", "run_files", "train"},
    "environment": {"files", "train"},
    "interop": BELOW_RUN | {"run", "run_config", "run_files", "train", "inference", "report"},
    "equations": BELOW_RUN
    | {"run", "run_config", "run_files", "train", "inference", "report", "preset_list"},
    "studies": BELOW_RUN
    | {
        "run",
        "run_config",
        "run_files",
        "train",
        "inference",
        "evaluation",
        "report",
        "preset_list",
        "world",
    },
    "inspect": BELOW_RUN | {"run", "run_config", "run_files", "inference", "report", "train", "world"},
    "__init__": BELOW_RUN
    | {
        "environment",
        "equations",
        "evaluation",
        "inference",
        "inspect",
        "interop",
        "preset_list",
        "run",
        "run_config",
        "run_files",
        "runs",
        "train",
        "vectors",
        "world",
        "studies",
    },
    "__main__": {"cli"},
    "cli": BELOW_RUN
    | {
        "environment",
        "preset_list",
        "run",
        "run_config",
        "run_files",
        "runs",
        "inference",
        "evaluation",
        "train",
        "inspect",
        "interop",
        "equations",
        "studies",
        "vectors",
        "world",
        "report",
        "__init__",
    },
}


def room(path: Path) -> str:
    """The folder or file of src/seqloom that the path belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Every module of the package that the file imports, anywhere in it, as (line, dotted name after `seqloom.`)."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            here = ["seqloom", *path.relative_to(SOURCE).parent.parts]
            base = [*here[: len(here) - node.level + 1], *([node.module] if node.module else [])]
            names = [".".join([*base, alias.name]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (
            (node.lineno, name.removeprefix("seqloom.")) for name in names if name.startswith("seqloom.")
        )


def wrong_imports(text: str, path: Path) -> list[str]:
    """A sentence for each import that the rules forbid."""
    here, name = room(path), path.relative_to(SOURCE)
    if here not in MAY_IMPORT:
        return [f"{name}: say in test_house.py which packages {here} may import"]
    allowed = MAY_IMPORT[here]
    may = ", ".join(sorted(allowed)) or "nobody"
    return [
        f"{name}:{line} imports {what.replace('.', '/')}, but {here} may import {may}"
        for line, what in imports(text, path)
        if what.split(".")[0] not in (here, "lazy", "errors", "results")
        and not what.startswith("__")
        and not any(f"{what}.".startswith(f"{one}.") for one in allowed)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_one_way(path: Path):
    found = wrong_imports(path.read_text("utf-8"), path)
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    "file, text, sentence",
    [
        (
            "nn/score.py",
            "from seqloom.text import store",
            "nn/score.py:1 imports text/store, but nn may import fused",
        ),
        (
            "nn/score.py",
            "def f():\n    import seqloom.run",
            "nn/score.py:2 imports run, but nn may import fused",
        ),
        (
            "models/a.py",
            "from seqloom import nn, data",
            "models/a.py:1 imports data, but models may import nn",
        ),
        (
            "decoding/a.py",
            "from seqloom.nn.layer import Layer",
            "decoding/a.py:1 imports nn/layer/Layer, but decoding may import files, fused.topk, nn.layer.select, threads",
        ),
        (
            "batches/a.py",
            "from ..nn import mask",
            "batches/a.py:1 imports nn/mask, but batches may import text",
        ),
        ("train/loop.py", "from seqloom.cli import main", "train/loop.py:1 imports cli/main"),
        ("__init__.py", "from seqloom.cli import main", "__init__.py:1 imports cli/main"),
        ("attic/a.py", "", "attic/a.py: say in test_house.py which packages attic may import"),
    ],
)
def test_a_wrong_import_is_a_sentence_that_names_both(file: str, text: str, sentence: str):
    found = wrong_imports(text, SOURCE / file)
    assert len(found) == 1 and found[0].startswith(sentence)


@pytest.mark.parametrize(
    "file, text",
    [
        ("nn/score.py", "from seqloom.nn.layer import Layer\nfrom .mask import causal\nimport torch"),
        ("decoding/a.py", "from seqloom.nn.layer import select"),
        ("cli/app.py", "from seqloom.run import load\nfrom seqloom import __version__"),
        ("__main__.py", "from seqloom.cli import main"),
    ],
)
def test_a_right_import_passes(file: str, text: str):
    assert wrong_imports(text, SOURCE / file) == []


def test_rooms_form_no_circle():
    """The rules themselves run one way."""
    left = {name: {other.split(".")[0] for other in allowed} for name, allowed in MAY_IMPORT.items()}
    while left:
        ready = [name for name, others in left.items() if not others & set(left)]
        assert ready, f"these packages may import one another in a circle: {', '.join(sorted(left))}"
        for name in ready:
            del left[name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small_and_plain(path: Path):
    """At most 400 lines, a docstring first, no `assert`, no pickle, and no `**kwargs` but a typed `Unpack`; only config passes
    on options, which it has checked."""
    text, name = path.read_text("utf-8"), path.relative_to(SOURCE)
    tree = ast.parse(text)
    assert text.count("\n") <= 400, (
        f"{name} has {text.count(chr(10))} lines: does it hold more than one thing?"
    )
    assert not text.strip() or ast.get_docstring(tree), (
        f"{name} does not say what it holds: begin it with a docstring"
    )
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            and room(path) != "config_tree"
        ):
            options = node.args.kwarg
            typed = options is not None and ast.unparse(options.annotation or options).startswith("Unpack[")
            assert options is None or typed, f"{name}:{node.lineno} takes any option, so typos pass"
        if isinstance(node, ast.Assert):
            pytest.fail(f"{name}:{node.lineno} asserts: raise a ValueError that tells the user what to do")
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = {getattr(node, "module", None) or "", *(alias.name for alias in node.names)}
            assert not modules & {"pickle", "dill", "joblib"}, (
                f"{name}:{node.lineno} imports pickle, which runs what it reads"
            )


PRINTS = {"world/__main__.py", "interop/numpy_runner.py"}  # programs of their own


def test_only_the_command_line_prints():
    """The library logs; a caller's stdout is the caller's."""
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith("cli/") and name not in PRINTS:
            calls = [
                node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)
            ]
            lines = [call.lineno for call in calls if ast.unparse(call.func) in ("print", "sys.stdout.write")]
            assert not lines, f"{name}:{lines} prints: use logging.getLogger('seqloom.…'), or return the text"


@pytest.mark.parametrize(
    "name",
    [
        "text",
        "config_tree.py",
        "errors.py",
        "results.py",
        "files.py",
        "cli",
        "__init__.py",
        "__main__.py",
    ],
)
def test_torch_is_loaded_only_where_it_is_needed(name: str):
    """Text and configs know no tensors, and `--help` does not wait for torch: outside functions these files import no room that has it."""
    rooms = (
        "run",
        "run_config",
        "nn",
        "fused",
        "models",
        "batches",
        "objectives",
        "train",
        "evaluation",
        "inference",
        "decoding",
        "threads",
    )
    heavy = {"torch", *(f"seqloom.{one}" for one in rooms)}
    path = SOURCE / name
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            found = [m for m in modules if any(f"{m}.".startswith(f"{h}.") for h in heavy)]
            assert not found, (
                f"{file.relative_to(SOURCE)}:{node.lineno} loads {found[0]} at once: import it inside the function that needs it"
            )


def test_no_public_function_is_a_module_too():
    """An import of the module would hide the function of its name."""
    import seqloom

    modules = {name for name in seqloom.__all__ if isinstance(getattr(seqloom, name), ModuleType)}
    assert modules == {"data", "inspect", "models", "nn", "runs", "vectors", "world"}
    functions = {*seqloom.__all__} - modules
    assert [name for name in functions if (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists()] == []


def test_public_names_can_be_listed():
    import seqloom

    assert set(seqloom.__all__) <= set(dir(seqloom)) and set(seqloom.__all__) == set(seqloom._NAMES)


@pytest.mark.parametrize(
    "path", sorted((SOURCE.parents[1] / "bench").glob("*.py")), ids=lambda path: path.stem
)
def test_a_benchmark_finds_what_it_imports(path: Path):
    """None of them runs with the tests: a part that moves must not leave one behind."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seqloom":
            module = importlib.import_module(node.module)
            for alias in node.names:
                there = (
                    hasattr(module, alias.name)
                    or importlib.util.find_spec(f"{node.module}.{alias.name}") is not None
                )
                assert there, f"{path.name}:{node.lineno}: {node.module} has no {alias.name}"


@pytest.mark.parametrize("package", ["", "nn", "models", "batches", "objectives", "vectors"])
def test_no_name_of_a_lazy_package_is_a_submodule(package: str):
    """Importing the submodule would replace the function of its name."""
    module = importlib.import_module(f"seqloom.{package}".rstrip("."))
    functions = {name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)}
    names = {name for name in functions if (SOURCE / package / name).with_suffix(".py").exists()}
    assert names == set() and set(dir(module)) == set(module.__all__)


def test_every_class_name_is_used_once():
    """A reader who searches for a class finds one."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice, f"class names that exist more than once: {twice}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_function_has_more_than_twelve_parameters(path: Path):
    """More want a NamedTuple or a dataclass. Constructors are exempt, whose signatures are the options of a config, and commands."""
    if room(path) == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name != "__init__":
            arguments = node.args
            names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len([name for name in names if name.arg not in ("self", "cls", "ctx")])
            assert count <= 12, f"{path.relative_to(SOURCE)}:{node.lineno} {node.name} has {count} parameters"


def test_only_kernels_import_numba_at_once():
    """Everything else works without numba, and `import seqloom` does not wait for it."""
    for path in FILES:
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                package = (module or "").split(".")[0]
                where = f"{path.relative_to(SOURCE)}:{node.lineno}"
                assert package != "numba" or room(path) == "kernels", f"{where} imports numba"
                allowed = path.parent.name == "kernels" and path.stem in ("host", "simd", "gemm_tiles")
                assert package != "llvmlite" or allowed, f"{where} imports llvmlite"


def test_models_are_not_asked_for_attributes():
    """What a model can do is declared in models/base.py."""
    for path in FILES:
        for line, text in enumerate(path.read_text("utf-8").splitlines(), 1):
            asks = "hasattr(" in text or "getattr(" in text
            assert not (asks and "model" in text), (
                f"{path.relative_to(SOURCE)}:{line} asks a model for an attribute"
            )
