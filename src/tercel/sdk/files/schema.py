"""The JSON schemas of job files, for editors, made from the tables that the reader goes by."""

from tercel.sdk.files.flow import FLOW
from tercel.sdk.files.keys import JOB, WHAT_IS_RUN
from tercel.sdk.files.kinds import Schema

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def job_schema() -> Schema:
    return {
        "$schema": _DRAFT,
        "title": "A Tercel job file",
        **JOB.schema(),
        "oneOf": [{"required": [key]} for key in sorted(WHAT_IS_RUN)],
        "dependentRequired": {"sweep_zip": ["sweep"]},
    }


def flow_schema() -> Schema:
    return {"$schema": _DRAFT, "title": "A Tercel flow file", **FLOW.schema()}


SCHEMAS = {"job": job_schema, "flow": flow_schema}
