"""`kill -9` of the manager in the middle of an upload: the content is there whole and checked, or not at all."""

import asyncio
import os
from urllib.parse import urlsplit

import pytest
from blake3 import blake3

from tests.lab import Lab
from tests.processes import becomes


@pytest.mark.must("a")
async def test_a_manager_killed_in_the_middle_of_an_upload_has_nothing_of_it_and_takes_it_again(
    lab: Lab,
) -> None:
    data = os.urandom(12 * 2**20)
    digest = f"blake3:{blake3(data).hexdigest()}"
    path = lab.root / "calib.tar"
    path.write_bytes(data)
    manager = await lab.manager_up()
    contents = lab.root / "data" / "contents"
    access = lab.access()
    _, writer = await asyncio.open_connection(urlsplit(access.url).hostname, urlsplit(access.url).port)
    head = f"PUT /v1/contents/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {access.token}\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[: 9 * 2**20])
    await becomes(
        lambda: sum(part.stat().st_size for part in contents.glob("passing-*")) > 0, "half of it came"
    )
    manager.kill()
    writer.close()
    assert not list(contents.glob("??/*"))
    await lab.manager_up()
    async with lab.client() as client:
        assert not await client.has_content(digest)
    lab.ok("file", "add", "lfn:calib", str(path))
    lab.ok("file", "get", "lfn:calib", str(lab.root / "copy"))
    assert (lab.root / "copy").read_bytes() == data
