"""The OpenAPI document, generated from the table of routes and the msgspec types: it cannot differ from the code."""

from typing import Any

import msgspec

from tercel import __version__
from tercel.core import commands, placement, points, rules
from tercel.core.filenames import NAME_MOST, URL_MOST
from tercel.core.model import MAX_BACKOFF_S, MAX_MEM_BYTES, MAX_PRIORITY, Role
from tercel.manager.access import MAX_NOTE, MAX_USER
from tercel.manager.files import MOST_BAD, MOST_URLS
from tercel.manager.requests import MAX_REASON, MAX_SELECTORS
from tercel.manager.submissions import MAX_KEY
from tercel.wire.api import (
    Clean,
    NewToken,
    Problem,
    QueueSettings,
    Retry,
    Revision,
    Rollback,
    Selection,
    Submission,
)
from tercel.wire.api_files import Checked, NewFile

Json = dict[str, Any]

MAX_NUMBER = 2**53
"""Of ids and task numbers: what every JSON reader knows exactly."""


class Parameter(msgspec.Struct, frozen=True):
    """One query parameter or part of the path."""

    name: str
    type: str = "string"
    where: str = "query"
    summary: str = ""
    required: bool = False
    most: int | None = None
    least: int | None = None
    many: bool = False
    values: tuple[str, ...] = ()
    pattern: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route: what is checked before its handler is called, and what the document says of it."""

    method: str
    path: str
    summary: str
    roles: tuple[Role, ...]
    """Whose tokens may use it; none are needed if empty."""
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    packed: bool = False
    """Whether the body may be msgpack as well as JSON."""
    raw: bool = False
    """Whether the body is any bytes."""
    most_bytes: int = 0
    """The largest body."""
    answer: type | None = None
    """None: not JSON; see `media`."""
    media: str = "application/json"
    status: int = 200
    again: bool = False
    """Whether doing it a second time is answered with 200 and the same."""
    problems: tuple[int, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Of its query parameters."""
        return frozenset(p.name for p in self.parameters if p.where == "query")


def document(operations: list[Operation]) -> Json:
    types = {t for o in operations for t in (o.body, o.answer) if t is not None} | {Problem}
    ordered = sorted(types, key=lambda t: t.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    for type_, limits in _LIMITS.items():
        if type_ in types:
            _restrict(components[type_.__name__], limits)
    if Submission in types:
        components[Submission.__name__] |= _ONE_PROGRAM
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tercel", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


# -- what types alone do not say --------------------------------------------------------------------------

_TEXT = r"^[^\x00]*$"
_NUMBERS = r"\d{1,10}(-\d{1,10}(:\d{1,10})?)?"
_TASKS = r"\d{1,16}(-\d{1,16})?(,\d{1,16}(-\d{1,16})?)*"
TASKS = rf"^{_TASKS}$"
_SELECTOR = rf"^(all|last|\d{{1,16}}(-\d{{1,16}})?|\d{{1,16}}\.{_TASKS})$"
_SELECTED: Json = {
    "select": {"minItems": 1, "maxItems": MAX_SELECTORS, "items": {"pattern": _SELECTOR}},
    "reason": {"maxLength": MAX_REASON},
}
_AMOUNT: Json = {"minimum": 0, "maximum": placement.MAX_AMOUNT}
_PLACED: Json = {
    "gpus": _AMOUNT,
    "resources": {
        "propertyNames": {"pattern": f"^{placement.RESOURCE}$"},
        "additionalProperties": _AMOUNT,
        "maxProperties": placement.MAX_RESOURCES,
    },
    "requires": {"items": {"pattern": f"^{placement.TAG}$"}},
}
_REVISED: Json = _SELECTED | {
    "cpus": {"minimum": 0.001, "maximum": commands.MAX_CPUS},
    "mem_bytes": {"minimum": 0, "maximum": MAX_MEM_BYTES},
    "time_limit_s": {"minimum": 0, "maximum": commands.MAX_SECONDS},
    **_PLACED,
}
_LIMITS: dict[type, Json] = {
    Clean: {"older_s": {"minimum": 1.0, "maximum": 100 * 365 * 86400.0}},
    Rollback: _SELECTED | {"states": {"items": {"enum": ["finished", "failed", "cancelled"]}}},
    Submission: {
        "argv": {"items": {"pattern": _TEXT}},
        "line": {"pattern": _TEXT, "maxLength": commands.MAX_LINE_BYTES},
        "lines": {
            "items": {"pattern": _TEXT, "maxLength": commands.MAX_LINE_BYTES, "minLength": 1},
            "minItems": 1,
        },
        "items": {"items": {"maxLength": points.MAX_ITEM_BYTES, "minLength": 2}, "minItems": 1},
        "calls": {"minItems": 1},
        "name": {"pattern": _TEXT, "maxLength": commands.MAX_NAME},
        "cwd": {"pattern": r"^(/[^\x00]*)?$", "maxLength": 4096},
        "key": {"pattern": _TEXT, "maxLength": MAX_KEY},
        "array": {"pattern": rf"^({_NUMBERS}(,{_NUMBERS})*(%[1-9]\d{{0,9}})?)?$"},
        "env": {"propertyNames": {"pattern": r"^[^=\x00]+$"}, "additionalProperties": {"pattern": _TEXT}},
        "cpus": {"minimum": 0.001, "maximum": commands.MAX_CPUS},
        "mem_bytes": {"minimum": 0, "maximum": MAX_MEM_BYTES},
        "time_limit_s": {"minimum": 0, "maximum": commands.MAX_SECONDS},
        "kill_grace_s": {"minimum": 0, "maximum": 3600},
        "priority": {"minimum": 0, "maximum": MAX_PRIORITY},
        "retries": {"minimum": 0, "maximum": commands.MAX_RETRIES},
        "backoff_s": {"minimum": 0, "maximum": MAX_BACKOFF_S},
        "max_fails": {"pattern": r"^(\d{1,9}|\d{1,2}(\.\d{1,6})?%|100%)?$"},
        "output_limit_bytes": {"minimum": 0, "maximum": commands.MAX_OUTPUT_BYTES},
        **_PLACED,
        "pids": {"minimum": 0, "maximum": placement.MAX_PIDS},
        "disk_bytes": {"minimum": 0, "maximum": MAX_MEM_BYTES},
        "mem_growth": {"minimum": 0, "maximum": placement.MAX_GROWTH},
        "isolate": {"enum": ["", *placement.ISOLATIONS]},
        "container": {"pattern": r"^([^\s\-]\S*)?$", "maxLength": placement.MAX_IMAGE},
        "cleanup": {"pattern": r"^([^\x00]*[^\x00\s][^\x00]*)?$", "maxLength": placement.MAX_CLEANUP_BYTES},
        "cleanup_limit_s": {"minimum": placement.LEAST_AMOUNT, "maximum": placement.MAX_CLEANUP_S},
        "warn_signal": {"pattern": r"^((SIG)?[A-Z][A-Z0-9]{1,9}@\d{1,9}(\.\d{1,3})?)?$"},
    },
    Selection: _SELECTED,
    Revision: _REVISED | {"priority": {"minimum": 0, "maximum": MAX_PRIORITY}},
    Retry: {name: _REVISED[name] for name in ("select", "reason", "mem_bytes", "time_limit_s")},
    QueueSettings: {
        "weight": {"exclusiveMinimum": 0, "maximum": rules.MAX_WEIGHT},
        "max_running": {"minimum": 0, "maximum": rules.MAX_CAP},
        "max_queued": {"minimum": 0, "maximum": rules.MAX_CAP},
        "user_max": {"minimum": 0, "maximum": rules.MAX_CAP},
        "reason": {"maxLength": MAX_REASON},
    },
    NewFile: {
        "name": {"pattern": r"^(lfn:|up:[^/]+/).+$", "maxLength": NAME_MOST},
        "digest": {"pattern": r"^(blake3:|sha256:)[0-9a-f]{64}$|^md5:[0-9a-f]{32}$"},
        "size_bytes": {"minimum": 0, "maximum": MAX_NUMBER},
        "urls": {"maxItems": MOST_URLS, "items": {"minLength": 1, "maxLength": URL_MOST}},
    },
    Checked: {"bad": {"maxLength": MOST_BAD}},
    NewToken: {
        "user": {"minLength": 1, "maxLength": MAX_USER, "pattern": r"^\S(.*\S)?$"},
        "note": {"maxLength": MAX_NOTE},
    },
}
"""What the types alone do not say of the fields of requests."""
_ONE_PROGRAM: Json = {
    "oneOf": [
        {"required": ["argv"], "properties": {"argv": {"minItems": 1}}},
        {"required": ["line"], "properties": {"line": {"minLength": 1}}},
        {"required": ["lines"], "properties": {"lines": {"type": "array"}}},
        {
            "required": ["function", "calls"],
            "properties": {"function": {"type": "object"}, "calls": {"type": "array"}},
        },
    ]
}
"""Exactly one of them says what is run."""


def _restrict(schema: Json, limits: Json) -> None:
    for field, limit in limits.items():
        described = schema["properties"][field]
        for branch in [b for b in described.get("anyOf", [described]) if b.get("type") != "null"]:
            for word, rule in limit.items():
                branch[word] = {**branch.get(word, {}), **rule} if isinstance(rule, dict) else rule


# -- operations -------------------------------------------------------------------------------------------


def _operation(operation: Operation) -> Json:
    path = operation.path.strip("/").replace("/", "_").translate(_NO_BRACES)
    described: Json = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}_{path}",
        "parameters": [_parameter(p) for p in operation.parameters],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {
                media: {"schema": _ref(operation.body)}
                for media in ("application/json", "application/msgpack")[: 1 + operation.packed]
            },
        }
    if operation.raw:
        described["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    if operation.roles:
        described["description"] = f"For tokens of role {' or '.join(operation.roles)}."
    else:
        described["security"] = []
    return described


_NO_BRACES = str.maketrans("", "", "{}.")


def _parameter(parameter: Parameter) -> Json:
    schema: Json = {"type": parameter.type}
    if parameter.values:
        schema["enum"] = list(parameter.values)
    if parameter.pattern:
        schema["pattern"] = parameter.pattern
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    if parameter.many:
        schema = {"type": "array", "items": schema, "minItems": 1 if parameter.required else 0}
    return {
        "name": parameter.name,
        "in": parameter.where,
        "required": parameter.required or parameter.where == "path",
        "description": parameter.summary,
        "schema": schema,
    }


def _responses(operation: Operation) -> Json:
    content: Json = (
        {operation.media: {"schema": _ref(operation.answer)}} if operation.answer else {operation.media: {}}
    )
    problem = {"application/problem+json": {"schema": _ref(Problem)}}
    answers: Json = {str(operation.status): {"description": "done", "content": content}}
    if operation.again:
        answers["200"] = {"description": "was done before", "content": content}
    for status in operation.problems:
        answers[str(status)] = {"description": _WORDS[status], "content": problem}
    return answers


_WORDS = {
    400: "the request is wrong; `field` says where",
    401: "no token, or one that is not known",
    403: "the token does not allow this",
    404: "there is no such thing, or it is not yours",
    408: "the request did not arrive in time",
    409: "other bytes have that name",
    413: "the request is too large",
    415: "the request is compressed",
    416: "there are not so many bytes",
    503: "something is broken for now; try again",
    507: "no room on the manager's disk",
}


def _ref(type_: type) -> Json:
    return {"$ref": f"#/components/schemas/{type_.__name__}"}
