"""ARCHITECTURE.md lists every module with its first line: run this file to write the list anew."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
MARK = "<!-- modules -->\n"


def modules() -> str:
    lines: list[str] = []
    folder = None
    for path in sorted((ROOT / "headrace").rglob("*.py"), key=lambda path: (path.parent, path)):
        if path.name == "__init__.py" and path.parent.name == "handlers":
            lines.append(
                "\n`headrace/broker/handlers/`: one module per API, named as in docs/apis.md."
            )
        if path.name == "__init__.py" or path.parent.name == "handlers":
            continue
        if path.parent != folder:
            folder = path.parent
            lines.append(f"\n**`{folder.relative_to(ROOT)}/`**\n")
        documentation = ast.get_docstring(ast.parse(path.read_text())) or ""
        lines.append(f"- `{path.name}` {documentation.splitlines()[0]}")
    return "\n".join(lines) + "\n"


def page() -> str:
    return PAGE.read_text().partition(MARK)[0] + MARK + modules()


def test_every_module_is_listed_as_it_is() -> None:
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
