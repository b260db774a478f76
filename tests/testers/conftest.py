"""A registry whose processes are gone when the test is; a package of somebody else's."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tercel.testers.registry import Testers
from tests.processes import becomes, is_running

Install = Callable[[str, dict[str, str], str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package: its name, its entry points by kind, the text of its one module."""

    def install(name: str, kinds: dict[str, str], module: str) -> None:
        root = tmp_path / f"site-{name}"
        info = root / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{kind} = {target}" for kind, target in kinds.items()]
        (info / "entry_points.txt").write_text("\n".join(["[tercel.testers]", *lines, ""]))
        (root / f"{name}.py").write_text(module)
        monkeypatch.syspath_prepend(str(root))

    return install


@pytest.fixture
async def testers() -> AsyncIterator[Testers]:
    testers = Testers()
    yield testers
    pids = testers.pids
    await testers.close()
    for pid in pids:
        await becomes(lambda pid=pid: not is_running(pid), "a host is ended")  # type: ignore[misc]
