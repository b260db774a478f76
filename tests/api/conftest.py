from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.house import House, Scripted, open_house
from tests.api.scene import Scene


def make_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for everything: nothing of the machine's own user is read or written."""
    for name in ("XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"):
        place = directory / name.lower()
        place.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(place))
    for name in ("TERCEL_SERVER", "TERCEL_TOKEN", "TERCEL_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_home(tmp_path, monkeypatch)


@pytest.fixture
async def house(home: Path) -> AsyncIterator[House]:
    async with open_house(home / "data") as one:
        yield one


@pytest.fixture
async def scene(home: Path) -> AsyncIterator[Scene]:
    async with open_house(home / "data", grace_s=0.1) as house:
        scene = Scene(house, Scripted(await house.dial(), "good"), Scripted(await house.dial(), "bad"))
        house._workers += [scene.good, scene.bad]
        await scene.set()
        yield scene
        await scene.end()
