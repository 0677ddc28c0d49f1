"""Make `build/dev/stepvault`: the package as it is installed, as links to the folders it is written in.

Type checkers do not see the import hook of an editable install. They read this tree instead. Folders are real
and files are links, so that a checker walks it like any package. Run it again when files come or go.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "dev" / "stepvault"
ROOMS = {"src/stepvault": ".", "checkpointers": "checkpointers", "stores": "stores"}


def link(room: Path, target: Path) -> None:
    """Mirror the folders of `room` under `target` and link its files."""
    for folder, folders, files in os.walk(room):
        folders[:] = [name for name in folders if name != "__pycache__"]
        here = target / Path(folder).relative_to(room)
        here.mkdir(parents=True, exist_ok=True)
        for name in files:
            (here / name).symlink_to(os.path.relpath(Path(folder, name), here))


def main() -> None:
    """Replace the tree."""
    shutil.rmtree(TREE, ignore_errors=True)
    for room, name in ROOMS.items():
        link(ROOT / room, TREE / name)


if __name__ == "__main__":
    main()
