"""Any message survives its way, and what is none is told apart."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tercel.core.errors import PeerError
from tercel.wire.messages import (
    FromManager,
    FromWorker,
)
from tercel.wire.session import ManagerSession, WorkerSession
from tests.worker.network import Server, close_all


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that occurs in a message."""
    kind_of = msgspec.inspect.type_info(kind) if not isinstance(kind, msgspec.inspect.Type) else kind
    match kind_of:
        case msgspec.inspect.IntType():
            return st.integers(-(2**63), 2**64 - 1)
        case msgspec.inspect.FloatType():
            return st.floats(allow_nan=False)
        case msgspec.inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern)
        case msgspec.inspect.StrType():
            return st.text(max_size=20)
        case msgspec.inspect.BytesType():
            return st.binary(max_size=50)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case msgspec.inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=4)
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(_values(item), max_size=4).map(tuple)
        case msgspec.inspect.TupleType(item_types=items):
            return st.tuples(*map(_values, items))
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key), _values(value), max_size=3)
        case msgspec.inspect.UnionType(types=types):
            return st.one_of(*(_values(one) for one in types))
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: _values(field.type) for field in fields})
    raise AssertionError(f"no strategy for {kind_of}")


any_from_worker = st.one_of(*(_values(kind) for kind in get_args(FromWorker)))
any_from_manager = st.one_of(*(_values(kind) for kind in get_args(FromManager)))
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _on_one_loop(scenario: Callable[[Server], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Server().running() as server:
            await scenario(server)

    asyncio.run(run())


@given(st.lists(any_from_worker, min_size=1, max_size=5), st.lists(any_from_manager, min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_any_message_survives_encoding(up: list[FromWorker], down: list[FromManager]) -> None:
    assert ManagerSession().decode(WorkerSession().encode(up)) == up
    assert WorkerSession().decode(ManagerSession().encode(down)) == down


@given(st.lists(any_from_worker, min_size=1, max_size=5), st.lists(any_from_manager, min_size=1, max_size=5))
@quick
def test_any_message_survives_the_network(up: list[FromWorker], down: list[FromManager]) -> None:
    async def scenario(server: Server) -> None:
        worker, manager = await server.connect()
        await worker.send(up)
        await manager.send(down)
        assert await manager.receive() == up
        assert await worker.receive() == down
        await close_all(worker, manager)

    _on_one_loop(scenario)


@given(st.binary())
@settings(max_examples=1000, deadline=None)
@pytest.mark.must("f")
def test_arbitrary_bytes_are_a_frame_or_a_peer_error(data: bytes) -> None:
    for session in (ManagerSession(), WorkerSession()):
        try:
            messages = session.decode(data)
        except PeerError:
            continue
        assert isinstance(messages, list)


@given(st.lists(any_from_worker, min_size=1, max_size=3), st.data())
@settings(max_examples=500, deadline=None)
@pytest.mark.must("f")
def test_damaged_frames_are_a_frame_or_a_peer_error(up: list[FromWorker], data: st.DataObject) -> None:
    frame = bytearray(WorkerSession().encode(up))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = frame[: data.draw(st.integers(0, len(frame)))]
    for damaged in (bytes(frame), bytes(cut)):
        try:
            ManagerSession().decode(damaged)
        except PeerError:
            pass
