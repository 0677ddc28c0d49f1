"""Random bytes by the kilobyte."""

from __future__ import annotations

import os
import sys

import pytest

from stepvault._drivers.entropy import Entropy


def test_no_piece_comes_twice() -> None:
    entropy = Entropy()
    found = {entropy(8) for _ in range(1000)}
    assert len(found) == 1000
    assert {len(piece) for piece in found} == {8}
    assert len(entropy(16)) == 16


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_fork_does_not_share_them() -> None:
    entropy = Entropy()
    entropy(8)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, entropy(8))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 8) not in {entropy(8) for _ in range(127)}
    os.close(read)
    os.close(write)
