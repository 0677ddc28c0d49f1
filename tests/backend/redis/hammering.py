"""A process that writes a thread and prunes it, and makes and deletes others, without a pause."""

from __future__ import annotations

import itertools
import sys

from stepvault.checkpointers.redis import RedisSaver
from tests.backend.redis.building import put


def main(url: str) -> None:
    with RedisSaver(url) as saver:
        for number in itertools.count(2):
            put(saver, "busy", number, small=[number])
            saver.prune(["busy"])
            put(saver, f"gone {number % 7}", number)
            saver.delete_thread(f"gone {(number - 3) % 7}")
            if number == 20:
                print("at work", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
