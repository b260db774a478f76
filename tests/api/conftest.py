from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.api.house import House, Scripted, open_house
from tests.api.scene import Scene


def make_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for everything: nothing of the machine's own user is read or written."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME"):
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """One manager for all that changes nothing, with one job in it."""
    with pytest.MonkeyPatch.context() as patch:
        home = make_home(tmp_path_factory.mktemp("bad"), patch)
        async with open_house(home / "data") as house:
            await house.submit(array="0-9", name="bystander")
            yield house


@pytest_asyncio.fixture(loop_scope="module")
async def standing(shared: House) -> AsyncIterator[House]:
    """It must be after every bad request as it was before."""
    before = await _all_there_is(shared)
    yield shared
    assert await _all_there_is(shared) == before
    await shared.sound()


async def _all_there_is(house: House) -> list[Any]:
    paths = ("/v1/status", "/v1/jobs?all=true", "/v1/pool", "/v1/tokens", "/v1/jobs/1/tasks")
    return [(await house.ask("GET", path)).json for path in paths]
