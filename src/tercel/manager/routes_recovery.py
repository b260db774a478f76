"""The routes about what blocked tasks wait for, and about what is turned off."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from tercel.manager import conditions, switches
from tercel.manager.access import Identity
from tercel.manager.calls import Call, answer, whole_number
from tercel.manager.openapi import MAX_NUMBER, Operation, Parameter
from tercel.manager.routing import ADMINS, ASKED, CHANGED, MAX_REQUEST_BYTES, USERS, Handler, Route, look
from tercel.manager.service import Manager
from tercel.wire.api import (
    ConditionFailure,
    ConditionList,
    ConditionRelease,
    ConditionView,
    Counted,
    SwitchChange,
    SwitchList,
)

MAX_PAGE = 1000
_CONDITION = Parameter("condition", "integer", "path", "3 of C3", least=0, most=MAX_NUMBER)


async def get_conditions(call: Call) -> web.Response:
    limit, before = call.number("limit", 1, MAX_PAGE) or 100, call.number("before", 0)
    return answer(
        await conditions.listed(
            call.manager, call.who, closed_too=call.flag("all"), before=before, limit=limit
        )
    )


async def get_condition(call: Call) -> web.Response:
    return answer(await conditions.shown(call.manager, call.who, _id(call)))


async def post_release(call: Call) -> web.Response:
    asked = await call.body(ConditionRelease)
    count = await conditions.release(call.manager, call.who, _id(call), asked.count)
    return answer(Counted(count=count))


async def post_fail(call: Call) -> web.Response:
    asked = await call.body(ConditionFailure)
    return answer(await conditions.fail(call.manager, call.who, _id(call), asked.why))


async def get_switches(call: Call) -> web.Response:
    return answer(switches.listed(call.manager))


async def post_switch(call: Call) -> web.Response:
    asked = await call.body(SwitchChange)
    why = asked.why if asked.off else None
    return answer(Counted(count=await switches.turn(call.manager, call.who, asked.name, why)))


def _id(call: Call) -> int:
    return whole_number(call.request.match_info["condition"], "condition", 0)


def _simply(do: Callable[[Manager, Identity, int], Awaitable[int]]) -> Handler:
    async def handle(call: Call) -> web.Response:
        return answer(Counted(count=await do(call.manager, call.who, _id(call))))

    return handle


def _change(verb: str, summary: str, handler: Handler, body: type | None = None) -> Route:
    operation = Operation(
        method="POST",
        path=f"/v1/conditions/{{condition}}/{verb}",
        roles=USERS,
        summary=summary,
        parameters=(_CONDITION,),
        body=body,
        most_bytes=MAX_REQUEST_BYTES,
        answer=Counted,
        problems=CHANGED,
    )
    return operation, handler


RECOVERY_ROUTES: list[Route] = [
    (
        Operation(
            method="GET",
            path="/v1/conditions",
            roles=USERS,
            summary="What blocked tasks wait for, newest first; what is closed too, if asked for all",
            parameters=(
                Parameter("before", "integer", summary="only ids below this", least=0, most=MAX_NUMBER),
                Parameter("limit", "integer", summary="page size", least=1, most=MAX_PAGE),
                Parameter("all", summary="closed ones too", values=("true", "false")),
            ),
            answer=ConditionList,
            problems=ASKED,
        ),
        get_conditions,
    ),
    look("/v1/conditions/{condition}", "One condition", ConditionView, get_condition, (_CONDITION,)),
    _change("test", "Test it now; the count is 0 if nobody can", _simply(conditions.test)),
    _change("release", "Let tasks go without a test", post_release, ConditionRelease),
    _change("fail", "Give it up: its tasks fail", post_fail, ConditionFailure),
    _change("pause", "Neither test it nor give it up until it is resumed", _simply(conditions.pause)),
    _change("resume", "Test it again, and at once", _simply(conditions.resume)),
    look("/v1/switches", "Systems and applications that are off", SwitchList, get_switches),
    (
        Operation(
            method="POST",
            path="/v1/switches",
            roles=ADMINS,
            summary="Turn a system or an application off, or on again",
            body=SwitchChange,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=CHANGED,
        ),
        post_switch,
    ),
]
