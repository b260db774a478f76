import os

import pytest

CHUNK = 200
"""Seeds per test, so that xdist can spread them."""
GATE_SEEDS = 3000
"""About a minute of one core."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="replay this one seed of the simulation")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("--seed", default=None)
    if one is None and "TERCEL_SIM_SEED" in os.environ:
        one = int(os.environ["TERCEL_SIM_SEED"])
    if one is not None:
        chunks = [range(one, one + 1)]
    else:
        first = int(os.environ.get("TERCEL_SIM_FIRST", "0"))
        last = first + int(os.environ.get("TERCEL_SIM_SEEDS", str(GATE_SEEDS)))
        chunks = [range(start, min(start + CHUNK, last)) for start in range(first, last, CHUNK)]
    metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])
