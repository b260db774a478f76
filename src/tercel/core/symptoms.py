"""What programs print when something outside is broken: one table from their messages to what must be there again.

A job that says `--block-on known` is blocked by it. Nobody else's is: a message may be quoted, or be of something that does not
matter. For those it makes the hint of a failed task one that can be pasted.
"""

import posixpath
import re

import msgspec

from tercel.core.model import BlockRule

SEARCHED_MOST = 4000
"""Characters of a stream: the last ones."""

_HOST = r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
_PORT = r"(?P<port>[0-9]{1,5})"
_NEAR = re.compile(r"[:/@](?:localhost(?:[:/]|$)|127\.)")
_PATH = r"(?P<path>/[^\s:'\"]{1,500})"


class Symptom(msgspec.Struct, frozen=True):
    said: str
    """A pattern, compiled by whoever first looks for it: most processes never do."""
    on: str
    """What a rule looks for: as much as does not change from one task to the next."""
    tester: str
    """With what `said` has found."""
    sure: bool = True
    """Not: somebody must say first what to test, and how."""


SYMPTOMS = (
    # ssh, scp, rsync, git
    Symptom(
        rf"ssh: connect to host {_HOST} port {_PORT}: ",
        "ssh: connect to host {host} port {port}",
        "ssh:{host}:{port}",
    ),
    Symptom(
        rf"(?P<user>[\w.-]{{1,64}})@{_HOST}: Permission denied \(",
        "{user}@{host}: Permission denied",
        "ssh-auth:{user}@{host}",
    ),
    Symptom(rf"ssh: Could not resolve hostname {_HOST}: ", "Could not resolve hostname {host}", "dns:{host}"),
    # names
    Symptom(
        rf"curl: \(6\) Could not resolve host: {_HOST}(?:\s|$)",
        "Could not resolve host: {host}",
        "dns:{host}",
    ),
    Symptom(
        rf"unable to resolve host address .{_HOST}\W", "unable to resolve host address .{host}", "dns:{host}"
    ),
    # HTTP: curl, wget, Python
    Symptom(
        rf"curl: \((?:7|28)\) (?:Failed to connect to|Connection timed out.*?) {_HOST} port {_PORT}",
        "{host} port {port}",
        "tcp:{host}:{port}",
    ),
    Symptom(
        r"(?:HTTPError: |HTTP Error |HTTP/[0-9.]{1,3} |status(?: code)?:? )(?P<code>429|50[234])\b[^\n]{0,200}?"
        rf"(?P<scheme>https?)://{_HOST}(?::{_PORT})?(?:[/\s'\"]|$)",
        "{code}.*{host}",
        "tcp:{host}:{port}",
    ),
    Symptom(
        rf"HTTPS?ConnectionPool\(host='{_HOST}', port={_PORT}\): (?:Read timed out|Max retries exceeded[^\n]{{0,300}}?"
        r"Caused by (?:NewConnection|ConnectTimeout|ReadTimeout|NameResolution|Protocol|Response)Error)",
        "ConnectionPool.host=.{host}., port={port}",
        "tcp:{host}:{port}",
    ),
    # databases
    Symptom(
        rf'connection to server at "{_HOST}"[^\n]{{0,80}}, port {_PORT} failed: (?:Connection|timeout|No route|'
        r"server closed|FATAL:\s+(?:the database system is|sorry, too many|remaining connection))",
        "connection to server at .{host}",
        "database:postgresql://{host}:{port}/",
    ),
    Symptom(
        r"sqlite3?[^\n]{0,80}: database is locked",
        "database is locked",
        "command:./is-unlocked.sh",
        sure=False,
    ),
    # file systems
    Symptom(rf"{_PATH}['\"]?: No space left on device", "No space left on device", "disk:{folder}>=1G"),
    Symptom(rf"No space left on device: ['\"]{_PATH}", "No space left on device", "disk:{folder}>=1G"),
    Symptom(r"No space left on device", "No space left on device", "disk:/tmp>=1G", sure=False),
    Symptom(r"Disk quota exceeded", "Disk quota exceeded", "command:./quota-ok.sh", sure=False),
    Symptom(
        rf"{_PATH}['\"]?:? (?:Stale file handle|Transport endpoint is not connected)",
        "Stale file handle|Transport endpoint is not connected",
        "file:{path}",
    ),
    # batch systems
    Symptom(
        r"Unable to contact slurm controller|Batch job submission failed: (?:Socket|Zero|Unable to contact)"
        r"|slurm_load_\w+ error: (?:Socket|Zero|Unable to contact)",
        "slurm controller|slurm_load_|Batch job submission failed",
        "command:sinfo",
    ),
    Symptom(
        r"Batch job submission failed: (?P<why>Job violates accounting/QOS policy|\w*Max\w*Limit)",
        "Batch job submission failed: {why}",
        "command:./may-submit.sh",
        sure=False,
    ),
    Symptom(
        r"(?:pbs_iff|qsub|qstat): cannot connect to server", "cannot connect to server", "command:qstat -B"
    ),
    Symptom(
        r"Failed to connect to (?:local )?queue manager",
        "Failed to connect to (local )?queue manager",
        "command:condor_q",
    ),
    # licences
    Symptom(
        # -15, -96, -97: no such server answers. Others answer that there is no such licence, or none left.
        rf"License path:[^\n]{{0,200}}?{_PORT}@{_HOST}[^\n]{{0,200}}\n(?:[^\n]{{0,200}}\n){{0,3}}?"
        r"[^\n]{0,40}icensing error: ?-(?:15|96|97)\b",
        "License path:",
        "tcp:{host}:{port}",
    ),
)


def known_patterns() -> tuple[tuple[str, str], ...]:
    """What to look for, where (`err`, `out`): the first that is found counts."""
    return tuple((stream, symptom.said) for stream in ("err", "out") for symptom in SYMPTOMS if symptom.sure)


def known_tester(said: str) -> str | None:
    """What must be there again, by a text that begins with what one of `known_patterns` has found."""
    for symptom in SYMPTOMS:
        if symptom.sure and (found := re.match(symptom.said, said[:SEARCHED_MOST])) is not None:
            return symptom.tester.format(**_values(found))
    return None


def is_near(tester: str) -> bool:
    """Whether it means another thing on each machine."""
    return _NEAR.search(tester) is not None


def rule_from(out: str, err: str) -> tuple[BlockRule, Symptom] | None:
    """The rule that would have waited for what these outputs speak of, if they speak of anything that is known."""
    for stream, text in (("stderr", err), ("stdout", out)):
        for symptom in SYMPTOMS:
            if (found := re.search(symptom.said, text[-SEARCHED_MOST:])) is not None:
                said = _values(found)
                on = symptom.on.format(**{name: re.escape(value) for name, value in said.items()})
                return BlockRule(on=f"{stream}:/{on}/", tester=symptom.tester.format(**said)), symptom
    return None


def _values(found: re.Match[str]) -> dict[str, str]:
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    if "scheme" in values:
        values.setdefault("port", "443" if values["scheme"] == "https" else "80")
    if "path" in values:
        values["folder"] = posixpath.dirname(values["path"])
    return values
