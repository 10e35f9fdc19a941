"""What the packages offer, whose they are, which way their imports point, and what lies in the wheel."""

import ast
import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

import dense
import hybrid
import sparta
from tests.environments import built_wheel

ROOT = Path(__file__).parents[2]
PACKAGES = ("sparta", "dense", "hybrid", "cli")
PACKAGED = {path.name for path in (ROOT / "models").iterdir()}
"""The models that are packages of their own."""


# Names


def _is_for_checkers(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def names_for_checkers(library: ModuleType) -> dict[str, str]:
    """The names that type checkers see in a package, and the modules that they see them come from."""
    tree = ast.parse(Path(library.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and _is_for_checkers(node))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: node.module for node in imports for name in node.names}


owners_of_packages = cache(packages_distributions)
LIBRARIES = (sparta, dense, hybrid)
NAMES = [(lib, name, home) for lib in LIBRARIES for name, home in names_for_checkers(lib).items()]
OLD_NAMES = [
    (sparta, "PathRecipe", "hybrid", "PathRecipe"),
    (sparta, "TermShare", "sparta.search.explain", "TermContribution"),
    (sparta, "train_path_reader", "hybrid", "train_path_reader"),
    (hybrid, "HybridHit", "sparta.base.records", "Hit"),
]
"""Names of an earlier release, and which others have taken the place of them."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_is_every_public_name_in_order(library):
    old = {name: f"{module}:{present}" for lib, name, module, present in OLD_NAMES if lib is library}
    homes = {**names_for_checkers(library), **old}
    assert library.__all__ == sorted(names_for_checkers(library))  # old names would warn
    assert dir(library) == library.__all__
    assert homes == library._HOMES  # noqa: SLF001 (a module that also has the name would load more)


@pytest.mark.parametrize(("library", "name", "home"), NAMES)
def test_a_name_is_what_its_home_defines(library, name, home):
    """Its home is the module that type checkers see it come from."""
    value = getattr(library, name)
    assert value is getattr(importlib.import_module(home), name)
    assert value.__module__ == home
    assert value.__doc__


@pytest.mark.parametrize(("library", "name", "module", "present"), OLD_NAMES)
def test_an_old_name_works_with_a_warning(library, name, module, present):
    with pytest.warns(DeprecationWarning, match=f"{library.__name__}.{name} is now {module}.{present}"):
        value = getattr(library, name)
    assert value is getattr(importlib.import_module(module), present)


EARLIER = [
    (lambda: sparta.TermContribution("sun", 2, 3, 0.5), {"share": "contribution"}, ""),
    (
        lambda **old: dense.DenseReport(Path(), 5, "flat", "tiny", **old),
        {"taken": "copied_vectors", "forgotten": "removed_vectors", "cut": "truncated_passages"},
        "DenseReport",
    ),
    (dense.VectorReport, {"cut": "truncated_passages"}, "VectorReport"),
    (
        lambda **old: hybrid.QuestionSet("made", (), **old),
        {"of": "sampled_from", "left_out": "omitted_questions", "without_own": "excludes_query_id"},
        "QuestionSet",
    ),
    (lambda **old: hybrid.SetResults("made", (), **old), {"left_out": "omitted_questions"}, "SetResults"),
    (lambda: hybrid.Fusion(), {"sum": "weighted_sum_text"}, ""),
    (lambda: object.__new__(hybrid.Chain), {"search": "find_paths"}, ""),
    (
        lambda: object.__new__(hybrid.ChainSearcher),
        {"search": "find_paths", "batch_search": "batch_find_paths"},
        "",
    ),
    (lambda **old: sparta.Interrupted(1, "passage", **old), {"untouched": "unchanged"}, "Interrupted"),
]
"""Objects with attributes of an earlier release, their names now, and the class whose arguments they are."""


@pytest.mark.parametrize(("make", "renamed", "arguments_of"), EARLIER)
def test_old_names_of_attributes_and_arguments_work_with_a_warning(make, renamed, arguments_of):
    for old, new in renamed.items():
        given = 7 if arguments_of else None
        if arguments_of:
            with pytest.warns(
                DeprecationWarning, match=rf"^{arguments_of}\({old}=…\) is now \S+\({new}=…\)$"
            ):
                made = make(**{old: given})
            assert getattr(made, new) == given
        else:
            made = make()
        with pytest.warns(DeprecationWarning, match=rf"^{type(made).__name__}\.{old} is now \S+\.{new}$"):
            value = getattr(made, old)
        assert value == getattr(made, new)


@pytest.mark.slow
def test_every_old_argument_of_a_training_and_an_index_warns(tmp_path):
    """What they refuse afterwards is not of interest here."""
    with (
        pytest.warns(DeprecationWarning, match="Index.every=….*Index.refresh_seconds=…"),
        pytest.raises(sparta.IndexStateError),
    ):
        sparta.Index(tmp_path, every=1.0)
    with pytest.warns(DeprecationWarning, match="p2_alone=….*only_p2=…"), pytest.raises(sparta.SpartaError):
        dense.train_in_two_stages(
            [], dense.Recipe(encoder=str(tmp_path / "nowhere")), tmp_path / "out", p2_alone=True
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_public_name_is_a_modules(library):
    """Importing the module would replace the name."""
    modules = {path.stem for path in Path(library.__file__).parent.iterdir()}
    assert set(library.__all__) & modules == set()


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_unknown_name(library):
    with pytest.raises(AttributeError, match=f"module '{library.__name__}' has no attribute 'nothing'"):
        library.nothing  # noqa: B018


def test_importing_the_libraries_loads_nothing_heavy():
    code = "import sparta, dense, hybrid, sys; print({'torch', 'jnius', 'numpy', 'scipy'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


# Owners


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_one_owner(package):
    """Two distributions that own the same name overwrite each other in silence."""
    owners = set(owners_of_packages().get(package, []))
    if not owners:
        pytest.skip("sparta is not installed in this environment")
    assert owners == {"sparta-search"}


def test_the_command_is_installed():
    try:
        points = distribution("sparta-search").entry_points
    except PackageNotFoundError:
        pytest.skip("sparta is not installed in this environment")
    assert sorted((p.name, p.value) for p in points if p.group == "console_scripts") == [
        ("dense", "cli._dense:main"),
        ("hybrid", "cli._hybrid:main"),
        ("sparta", "cli._sparta:main"),
    ]


# The wheel


@pytest.fixture(scope="module")
def wheel(made_once: Callable[..., Path]) -> zipfile.ZipFile:
    """The wheel of what git knows of."""
    return zipfile.ZipFile(built_wheel(made_once))


@pytest.mark.slow
def test_the_wheel_holds_what_is_needed_and_no_more(wheel):
    names = set(wheel.namelist())
    code = {str(p.relative_to(ROOT)) for package in PACKAGES for p in (ROOT / package).rglob("*.py")}
    resources = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "sparta" / "resources").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts and not PACKAGED & {*p.parts}
    }
    assert {"sparta/resources/sparta-lucene.jar", "sparta/resources/calibration.txt"} <= names
    chains = {str(p.relative_to(ROOT)) for p in (ROOT / "hybrid" / "multihop").glob("*.toml")}
    page = {str(p.relative_to(ROOT)) for p in (ROOT / "hybrid" / "service" / "static").iterdir()}
    typed = {f"{library.__name__}/py.typed" for library in LIBRARIES}
    expected = code | resources | chains | page | typed | {"hybrid/opensearch/loading.md"}
    assert {name for name in names if ".dist-info/" not in name} == expected
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert top == set(PACKAGES)


@pytest.mark.slow
def test_a_package_index_takes_the_wheel(wheel):
    assert sum(entry.compress_size for entry in wheel.infolist()) < 100 * 10**6


@pytest.mark.slow
def test_the_wheel_names_its_command_and_license(wheel):
    (info,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(f"{info}/entry_points.txt").decode().splitlines()[:4] == [
        "[console_scripts]",
        "dense = cli._dense:main",
        "hybrid = cli._hybrid:main",
        "sparta = cli._sparta:main",
    ]
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "Requires-Python: >=3.12" in wheel.read(f"{info}/METADATA").decode()


@pytest.mark.slow
def test_the_models_that_ship_are_whole():
    """Those that the languages name, each with a card whose checksum is that of the weights."""
    from dense.models.resolve import DEFAULT_DENSE_MODEL
    from sparta.data.languages import LANGUAGES
    from sparta.models.resolve import DEFAULT_MODEL
    from sparta.reader.config import DEFAULT_READER

    models = [p for p in (ROOT / "sparta" / "resources" / "models").glob("*") if p.is_dir()]
    if not models:
        pytest.skip("no model is in this checkout")
    kinds = ("model", "dense", "reader", "path_reader", "multi_task", "reranker")
    named = {name for own in LANGUAGES.values() for kind in kinds if (name := getattr(own, kind))}
    needed = {DEFAULT_MODEL, DEFAULT_DENSE_MODEL, DEFAULT_READER, LANGUAGES["en"].path_reader}
    assert {p.name for p in models} == named >= needed
    for model in models:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        if "sparta" in config:
            assert config["sparta"]["quantizer"]["max_weight"] > 0
        elif model.name == DEFAULT_DENSE_MODEL:
            assert config["dense"]["routing"] == "det"
        elif model.name == LANGUAGES["en"].multi_task:
            assert config["dense"]["skills"]["skills"] == ["single"]
        elif model.name == LANGUAGES["en"].path_reader:
            assert config["path_reader"]["max_length"] == 320
        elif model.name == LANGUAGES["en"].reranker:
            assert config["architectures"] == ["BertForSequenceClassification"]
        else:
            assert config["reader"]["answer"]["a"] > 0
        card = (model / "README.md").read_text(encoding="utf-8")
        assert hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest() in card
        assert (model / "tokenizer.json").is_file()
        assert sum(p.stat().st_size for p in model.iterdir()) < 50e6
