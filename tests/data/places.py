"""Storages of every kind, as the tests of transfers see them: what is there, without the code under test."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import boto3  # type: ignore[import-untyped]
import pytest

from tercel.testers.running import descendants
from tests.data import servers
from tests.testers.servers import Sshd


class Place(Protocol):
    def url(self, name: str) -> str: ...

    def put(self, name: str, data: bytes) -> None: ...

    def all(self) -> dict[str, bytes]:
        """All that is there, under whatever name."""


class Directory:
    """Of a disk; `prefix` is how its URLs begin."""

    def __init__(self, directory: Path, prefix: str, quotes: bool = True) -> None:
        self.directory = directory
        self._prefix, self._quotes = prefix, quotes
        directory.mkdir(exist_ok=True)

    def url(self, name: str) -> str:
        path = f"{self.directory}/{name}"
        return self._prefix + (quote(path) if self._quotes else path)

    def put(self, name: str, data: bytes) -> None:
        (self.directory / name).write_bytes(data)

    def all(self) -> dict[str, bytes]:
        found = (path for path in self.directory.rglob("*") if path.is_file())
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in found}


class Sftp(Directory):
    def __init__(self, directory: Path, sshd: Sshd) -> None:
        super().__init__(directory, f"sftp://root@127.0.0.1:{sshd.port}")
        self.sshd = sshd

    def kill(self) -> None:
        """Those that serve a connection each; who listens goes on."""
        for pid in descendants([self.sshd.pid]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Pages:
    def __init__(self, directory: Path, stack: ExitStack) -> None:
        directory.mkdir(exist_ok=True)
        self.server = stack.enter_context(servers.web(directory))

    def url(self, name: str) -> str:
        return f"{self.server.url}/{quote(name)}"

    def put(self, name: str, data: bytes) -> None:
        self.server.file(name).write_bytes(data)

    def all(self) -> dict[str, bytes]:
        found = self.server.directory.iterdir()
        return {path.name.replace("%2F", "/"): path.read_bytes() for path in found}


class Bucket:
    def __init__(self, endpoint: str) -> None:
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="ada",
            aws_secret_access_key="secret",
            region_name="eu-west-1",
        )

    def url(self, name: str) -> str:
        return f"s3://lab/{name}"

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket="lab", Key=name, Body=data)

    def all(self) -> dict[str, bytes]:
        keys = [each["Key"] for each in self.client.list_objects_v2(Bucket="lab").get("Contents", ())]
        return {key: self.client.get_object(Bucket="lab", Key=key)["Body"].read() for key in keys}


KINDS = ("path", "file", "http", "s3", "sftp", "other")


@contextmanager
def places(directory: Path, environment: pytest.MonkeyPatch) -> Iterator[dict[str, Place]]:
    """One of each kind. `other`: what is known to fsspec only."""
    with ExitStack() as stack:
        sshd = Sshd(directory / "sshd")
        stack.callback(sshd.close)
        environment.setenv("TERCEL_SSH_CONFIG", sshd.options()[1])
        endpoint = stack.enter_context(servers.s3())
        for name, value in {
            "ENDPOINT_URL": endpoint,
            "ACCESS_KEY_ID": "ada",
            "SECRET_ACCESS_KEY": "s",
        }.items():
            environment.setenv(f"AWS_{name}", value)
        environment.setenv("NETRC", str(directory / "none"))
        yield {
            "path": Directory(directory / "path", "", quotes=False),
            "file": Directory(directory / "file", "file://"),
            "http": Pages(directory / "http", stack),
            "s3": Bucket(endpoint),
            "sftp": Sftp(directory / "sftp", sshd),
            "other": Directory(directory / "other", "local://", quotes=False),
        }
