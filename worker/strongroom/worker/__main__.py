"""`python -I -m strongroom.worker SOCKET`: one front end, a child of the launcher."""

import asyncio
import os
import signal
import sys

from strongroom.protocol.address import Address
from strongroom.worker.environment import die_with_parent, fix_environment
from strongroom.worker.link import Link

_PULSE_SECONDS = 1.0


async def _run(path: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    link = Link(path)
    settings = await link.configure()
    fix_environment(settings.engine.cpu_kv_cache_gib if settings.engine.HasField("cpu_kv_cache_gib") else None)
    # From here on vLLM may be imported: it reads the environment when it is.
    from strongroom.worker.engine import start_engine
    from strongroom.worker.service import FrontEnd

    async with start_engine(settings) as engine:
        front_end = FrontEnd(engine, link, settings.max_open_requests)
        rings = link.key_rings(engine.description)
        front_end.take(await anext(rings))
        server = await front_end.serve(Address.parse(settings.listen))

        async def follow_keys() -> None:
            async for ring in rings:
                front_end.take(ring)
            raise ConnectionError("the launcher ended the key ring")

        async def beat() -> None:
            while True:
                engine.check()
                await link.beat(front_end.pulse())
                await asyncio.sleep(_PULSE_SECONDS)

        async def stopped() -> None:
            await stop.wait()

        tasks = [asyncio.create_task(work) for work in (follow_keys(), beat(), stopped())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await front_end.drain(settings.drain_seconds if stop.is_set() else 0)
            await server.stop(0)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()


def main() -> None:
    """Run until SIGTERM, or until the launcher is gone."""
    os.umask(0o077)
    die_with_parent(os.getppid())
    try:
        asyncio.run(_run(sys.argv[1]))
    except Exception as error:
        # On one line, which the launcher looks for.
        reason = " ".join(str(error).split())
        print(f"strongroom.worker: {type(error).__name__}: {reason}", file=sys.stderr)  # noqa: T201
        sys.exit(1)


if __name__ == "__main__":
    main()
