"""The house rules a linter cannot hold: sizes, and documents that must not lag behind the code."""

import ast
import re
from pathlib import Path

import pytest

from headrace.protocol.apis import APIS

ROOT = Path(__file__).parents[1]
MODULE_LINES = 600
FUNCTION_LINES = 60
MODULES = sorted((ROOT / "headrace").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_small(module: Path) -> None:
    source = module.read_text()
    assert len(source.splitlines()) <= MODULE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION_LINES, f"{node.name} has {lines} lines"


def test_each_served_api_has_its_handler() -> None:
    handlers = {path.stem for path in (ROOT / "headrace/broker/handlers").glob("*.py")}
    assert {api.name for api in APIS.values()} == handlers - {"__init__"}


def test_no_path_of_one_machine_stands_in_the_tree() -> None:
    kept = [path for path in ROOT.rglob("*") if path.suffix in {".py", ".md", ".toml", ".txt"}]
    hidden = re.compile(r"/\.|build/|egg-info")
    forbidden = re.compile(r"(?<![\w.])/(work|root|farm)/")
    for path in kept:
        if not hidden.search(str(path.relative_to(ROOT.parent))):
            assert not forbidden.search(path.read_text()), path


def test_the_coverage_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs/coverage.md").read_text()
    named = set(re.findall(r"`((?:tests|bench)/[\w/]+\.(?:py|txt))`", page))
    assert len(named) > 20
    assert {name for name in named if not (ROOT / name).exists()} == set()
