"""1 GiB from a local server of HTTP, fetched by the mover and hashed, against `curl` to a file; and if the disk is waited for."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness import claim, place, run
from tercel.data.contract import Fetch
from tercel.data.moving import Mover

SIZE = 1 << 30
ROUNDS = 5


def serve(path: str) -> None:
    """In a process of its own, straight from the page cache to the socket, so that it is not what is measured."""
    file = os.open(path, os.O_RDONLY)

    def answer(connection: socket.socket) -> None:
        with connection:
            asked = b""
            while b"\r\n\r\n" not in asked:
                if not (more := connection.recv(65536)):
                    return
                asked += more
            begin, end, status = 0, SIZE, "200 OK"
            for line in asked.decode().lower().split("\r\n"):
                if line.startswith("range: bytes="):
                    first, _, last = line.partition("=")[2].partition("-")
                    begin, end, status = int(first), int(last or SIZE - 1) + 1, "206 Partial Content"
            connection.sendall(
                f'HTTP/1.1 {status}\r\nContent-Length: {end - begin}\r\nAccept-Ranges: bytes\r\nETag: "a"\r\n'
                f"Content-Range: bytes {begin}-{end - 1}/{SIZE}\r\nConnection: close\r\n\r\n".encode()
            )
            while begin < end and asked.startswith(b"GET"):
                begin += os.sendfile(connection.fileno(), file, begin, min(4 << 20, end - begin))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()


async def main() -> None:
    with place() as at:
        source, got = at.root / "source", at.root / "got"
        with source.open("wb") as file:
            for _ in range(64):
                file.write(os.urandom(SIZE // 64))
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", str(source)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/x"
        mover = Mover()
        try:
            await mover.stat(url)  # it is there before the clock runs, as it is in a worker
            curls, ours, durable = [], [], []
            for _ in range(ROUNDS):  # by turns: what disturbs one disturbs the other
                curls.append(await by_curl(url, got))
                got.unlink()
                ours.append(await by_mover(mover, url, got, durable=False))
                got.unlink()
                durable.append(await by_mover(mover, url, got, durable=True))
                got.unlink()
        finally:
            await mover.close()
            server.kill()
            server.wait()
    print("curl ", *(f"{SIZE / each / 1e6:,.0f}" for each in curls), "MB/s")
    print("mover", *(f"{SIZE / each / 1e6:,.0f}" for each in ours), "MB/s, verified")
    print(
        "      ",
        *(f"{SIZE / each / 1e6:,.0f}" for each in durable),
        "MB/s, verified and durable, as curl's is not",
    )
    # The best of each: whatever else the disk has to do makes a round slower, never quicker.
    claim("stage-in of 1 GiB, verified, against curl", min(curls) / min(ours), 0.8)


async def by_curl(url: str, path: Path) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("curl", "-s", "-o", str(path), url)
    assert await process.wait() == 0
    return time.perf_counter() - began


async def by_mover(mover: Mover, url: str, path: Path, durable: bool) -> float:
    began = time.perf_counter()
    fetched = await mover.fetch(Fetch(urls=(url,), path=str(path), size_bytes=SIZE, durable=durable))
    assert fetched.size_bytes == SIZE
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    run(main())
