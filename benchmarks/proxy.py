"""A TCP proxy on a port of its own that adds latency: `python -m benchmarks.proxy PORT ROUND_TRIP_MS`.

Each direction is late by half a round trip; order and throughput stay. Prints the port it listens on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await late.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.close()

    delivery = asyncio.create_task(deliver())
    data = b"-"
    while data:
        with contextlib.suppress(OSError):
            data = await reader.read(65536)
        late.put_nowait((loop.time() + delay, data))
    with contextlib.suppress(OSError):
        await delivery


async def serve(port: int, round_trip_ms: float) -> None:
    delay = round_trip_ms / 2000

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back, delay), carry(there, writer, delay))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
