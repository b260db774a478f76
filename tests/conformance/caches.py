"""What tests of caches share: files to put in, and what must be so at any time."""

import os
from pathlib import Path

from blake3 import blake3

from tercel.data.cache import Cache
from tercel.data.cache_files import is_intact


def digest_of(data: bytes) -> str:
    return f"blake3:{blake3(data).hexdigest()}"


def content(number: int, size_bytes: int) -> bytes:
    return bytes([number]) * size_bytes


def bring(cache: Cache, data: bytes, pin: str, key: str = "") -> Path:
    """Fetched, checked and added."""
    digest = digest_of(data)
    claim = cache.claim(key or digest)
    assert claim is not None
    try:
        claim.path.unlink(missing_ok=True)
        claim.path.write_bytes(data)
        return cache.add(claim, digest, len(data), pin)
    finally:
        claim.release()


def files_in(dir: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (dir / "objects").glob("*/*")}


def agrees(cache: Cache) -> None:
    """The index is what the files are, and each is whole."""
    files = files_in(cache.dir)
    assert dict(cache.contents()) == files
    for name in files:
        path = next((cache.dir / "objects").glob(f"*/{name}"))
        assert is_intact(name, path.stat())
        assert digest_of(path.read_bytes()) == name


def lives_on(cache: Cache) -> bool:
    return os.path.exists(cache.dir / "pins" / "one" / ".lock")
