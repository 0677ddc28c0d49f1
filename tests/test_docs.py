"""Every Python block of these pages runs as it stands, after those before it on its page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = (
    "backups",
    "encryption",
    "erasure",
    "evolution",
    "memories",
    "options",
    "search",
    "steps",
    "stores",
    "ttl",
    "values",
)
OTHERS = {"postgres", "redis", "resuming"}  # these begin from a graph or a server of the reader's


@pytest.mark.parametrize("page", PAGES)
def test_its_blocks_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType(f"docs_{page}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    for block in BLOCK.findall((DOCS / f"{page}.md").read_text()):
        code = block.replace("vault.seal(", "vault.seal(settle=0, ")  # for other processes, of which there are none
        exec(compile(code, f"{page}.md", "exec"), names)
    for opened in ("vault", "saver", "store"):
        if hasattr(names.get(opened), "close"):
            names[opened].close()


def test_no_page_is_forgotten() -> None:
    found = {path.stem for path in DOCS.glob("*.md") if BLOCK.search(path.read_text())}
    assert found == {*PAGES, *OTHERS}
