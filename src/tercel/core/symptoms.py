"""What programs print when something outside is broken: one table from their messages to what must be there again.

A job that says `--block-on known` is blocked by it. Nobody else's is: a message may be quoted, or be of something that does not
matter. For those it makes the hint of a failed task one that can be pasted.
"""

import posixpath
import re
from functools import cache, lru_cache

import msgspec

from tercel.core.model import BlockRule
from tercel.core.patterns import Taken, taking

SEARCHED_MOST = 4000
"""Characters of a stream: the last ones."""

_HOST = r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
_PORT = r"(?P<port>[0-9]{1,5})"
_NEAR = re.compile(r"[:/@](?:localhost(?:[:/]|$)|127\.)")
_PATH = r"(?P<path>/[^\s:'\"]{1,500})"
_PAGE = r"(?P<page>/[!$-&(-;=@-~]*)"
_URL = rf"(?P<scheme>https?)://(?:[^\s/@'\"]*@)?{_HOST}(?::{_PORT})?(?:{_PAGE}|[?#\s'\"<>,;)]|$)"
"""Who logs in, and what is asked of a page, are no part of what is tested: they may be secrets."""
_LATER = "(?P<code>429|50[234])"
_CURL = (
    r"(?P<words>curl: \((?:22\) The requested URL returned error: (?:429|50[234])\b|18\) transfer closed"
    r"|28\) Operation timed out|52\) Empty reply|56\) (?:Recv failure|OpenSSL SSL_read)))"
)
"""It never says of which URL."""


class Symptom(msgspec.Struct, frozen=True):
    said: str
    """A pattern of lines (`^`, `$`), compiled by whoever first looks for it: most processes never do."""
    on: str
    """What a rule looks for: as much as does not change from one task to the next."""
    tester: str
    """With what `said` has found."""
    sure: bool = True
    """Not: somebody must say first what to test, and how."""


SYMPTOMS = (
    # ssh, also under scp, sftp, rsync and git
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
    Symptom(
        rf"Connection (?:(?:closed|reset) by|to) {_HOST} port {_PORT}(?: timed out|\r?\n|$)",
        "Connection .*{host} port {port}",
        "ssh:{host}:{port}",
    ),
    Symptom(
        r"(?P<words>(?:kex|ssh)_exchange_identification:|Connection (?:closed|reset) by UNKNOWN port)",
        "{words}",
        "ssh:HOST",
        sure=False,
    ),
    Symptom(
        rf"rsync: (?:\[\w+\] )?failed to connect to {_HOST} \(",
        "failed to connect to {host}",
        "tcp:{host}:873",
        sure=False,  # the port may be another
    ),
    # names
    Symptom(
        rf"(?:curl: \(6\)|':) Could not resolve host: {_HOST}(?:\s|$)",
        "Could not resolve host: {host}",
        "dns:{host}",
    ),
    Symptom(
        r"(?P<words>unable to resolve host address .|could not translate host name \"|dial tcp: lookup "
        rf"|Unknown (?:MySQL )?server host '){_HOST}\W",
        "{words}{host}",
        "dns:{host}",
    ),
    # HTTP with a URL: curl, wget, git, Python
    Symptom(
        r"(?:HTTPError: |HTTP Error |HTTP/[0-9.]{1,3} |status(?: code)?:? |ResponseError: "
        rf"|StatusError: (?:Client|Server) error '){_LATER}\b[^\n]{{0,200}}?{_URL}",
        "{code}.*{host}",
        "{url}<500",
    ),
    Symptom(
        rf"HTTP(?P<tls>S?)ConnectionPool\(host='{_HOST}', port={_PORT}\): Max retries exceeded with url: {_PAGE}"
        rf"[^\n]*?Caused by ResponseError\('too many {_LATER} ",
        "ConnectionPool.host=.{host}., port={port}.*too many {code}",
        "{url}<500",
    ),
    Symptom(
        rf"unable to access '{_URL}[^'\n]*': (?:The requested URL returned error: (?:429|50[234])\b|Failed to connect"
        r"|Connection timed out|Operation timed out|Empty reply|Recv failure)",
        "unable to access .*{host}",
        "{url}<500",
    ),
    Symptom(
        rf"(?:Could not connect to the|Connect timeout on|Read timeout on|closed before [a-z ]{{1,40}} from) endpoint URL: \"{_URL}",
        "endpoint URL: .*{host}",
        "{url}<500",
    ),
    Symptom(  # as `sh -x` shows it
        rf"^\++ curl [^\n]*?{_URL}(?:[^\n]*\n)??(?:[^+\n][^\n]*\n){{0,4}}?{_CURL}", "{words}", "{url}<500"
    ),
    Symptom(  # as `-w`, or the script, tells it
        rf"{_CURL}[^\n]*\n(?:[^+\n][^\n]*?)?{_URL}", "{words}", "{url}<500"
    ),
    Symptom(
        rf"--[0-9][-0-9 :]{{18}}--  (?:\(try: ?[0-9]+\)  )?{_URL}[^\n]*\n(?:[^-\n][^\n]*\n){{0,8}}?[^-\n][^\n]*"
        r"(?P<words>awaiting response\.\.\. (?:429|50[234]) |awaiting response\.\.\. (?:No data|Read error)"
        r"|failed: (?:Connection|No route|Network))",
        "{words}",
        "{url}<500",
    ),
    Symptom(
        rf"{_URL}[^\s]*:\n[0-9][-0-9 :]{{18}} ERROR {_LATER}: ",  # wget -nv
        "ERROR {code}: ",
        "{url}<500",
    ),
    # HTTP with a server
    Symptom(
        rf"curl: \((?:7|28)\) (?:Failed to connect to|Connection timed out.*?) {_HOST} port {_PORT}",
        "{host} port {port}",
        "tcp:{host}:{port}",
    ),
    Symptom(
        r"curl: \(35\) OpenSSL SSL_connect: (?:SSL_ERROR_SYSCALL|Connection reset by peer|Connection timed out)"
        rf" in connection to {_HOST}:{_PORT}",
        "in connection to {host}:{port}",
        "https://{host}:{port}/<500",
    ),
    Symptom(
        rf"HTTPS?ConnectionPool\(host='{_HOST}', port={_PORT}\): (?:Read timed out|Max retries exceeded[^\n]{{0,300}}?"
        r"Caused by (?:NewConnection|ConnectTimeout|ReadTimeout|NameResolution|Protocol)Error)",
        "ConnectionPool.host=.{host}., port={port}",
        "tcp:{host}:{port}",
    ),
    Symptom(
        rf"Cannot connect to host {_HOST}:{_PORT} ssl:",
        "Cannot connect to host {host}:{port}",
        "tcp:{host}:{port}",
    ),
    # HTTP with neither
    Symptom(_CURL, "{words}", "https://HOST/<500", sure=False),
    Symptom(
        r"(?P<words>HTTP Error (?:429|50[234]):|urlopen error (?:\[Errno (?:-2|-3|104|110|111|113)\]|timed out)"
        r"|httpx\.(?:Connect|Read)(?:Error|Timeout):|RemoteProtocolError: Server disconnected|RemoteDisconnected\b"
        r"|Connection aborted\.', ConnectionResetError|ServerDisconnectedError:"
        r"|An error occurred \((?:429|50[234]|SlowDown|ServiceUnavailable)\) when calling)",
        "{words}",
        "https://HOST/<500",
        sure=False,
    ),
    # databases
    Symptom(
        rf'connection to server at "{_HOST}"[^\n]{{0,80}}, port {_PORT} failed: (?:Connection|timeout|No route|'
        r"server closed|FATAL:\s+(?:the database system is|sorry, too many|remaining connection))",
        "connection to server at .{host}",
        "database:postgresql://{host}:{port}/",
    ),
    Symptom(
        rf"Can't connect to (?:MySQL |MariaDB )?server on '{_HOST}:{_PORT}'",
        "server on .{host}:{port}",
        "database:mysql://{host}:{port}",
    ),
    Symptom(
        rf"Can't connect to (?:MySQL |MariaDB )?server on '{_HOST}'",
        "server on .{host}",
        "database:mysql://{host}",
        sure=False,  # the port may be another
    ),
    Symptom(
        rf"Can't connect to local (?:MySQL |MariaDB )?server through socket '{_PATH}'",
        "server through socket .{path}",
        "file:{path}",
        sure=False,  # is that of each machine
    ),
    Symptom(
        r"(?P<words>Lost connection to (?:MySQL |MariaDB )?server at )",
        "{words}",
        "database:mysql://HOST",
        sure=False,
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
    Symptom(  # Grid Engine. Others of its `commlib error`s are of access that is denied
        r"commlib error: (?:got select error|can't connect to service) \([^\n]*\n[^\n]{0,80}?qmaster using port "
        rf"{_PORT} on host \"{_HOST}\"",
        "qmaster using port {port} on host .{host}",
        "tcp:{host}:{port}",
    ),
    Symptom(  # LSF
        r"(?P<words>LIM is down; try later|Cannot locate master LIM now|LSF daemon \(LIM\) not responding|LSF is down\. Please wait)",
        "{words}",
        "command:bqueues",
    ),
    Symptom(  # kubectl. Port 8080 is where it looks if nobody has told it of any cluster
        rf"(?:The connection to the server |Unable to connect to the server: dial tcp ){_HOST}:(?P<port>[0-9]{{1,3}}|[0-79][0-9]{{3}}"
        r"|8[1-9][0-9]{2}|80[0-79][0-9]|808[1-9]|[0-9]{5})(?: was refused|: connect: |: i/o timeout)",
        "to the server.* {host}:{port}",
        "tcp:{host}:{port}",
    ),
    Symptom(
        r"(?P<words>Error from server \((?:ServiceUnavailable|TooManyRequests|Timeout|ServerTimeout)\)"
        r"|Unable to connect to the server: (?:net/http: request canceled|net/http: TLS handshake timeout|context deadline|EOF))",
        "{words}",
        "command:kubectl get --raw=/readyz",
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
"""Of one kind, whoever says more comes first: a URL before a server, a server before neither."""


def known_patterns() -> tuple[tuple[str, str], ...]:
    """What to look for, where (`err`, `out`): the first that is found counts."""
    return tuple((stream, symptom.said) for stream in ("err", "out") for symptom in SYMPTOMS if symptom.sure)


def known_tester(said: str) -> str | None:
    """What must be there again, by a text that begins with what one of `known_patterns` has found."""
    found = _known(said)
    return found[0] if found is not None else None


def known_words(said: str) -> str:
    """What says so: the whole lines."""
    found = _known(said)
    return found[1] if found is not None else ""


@lru_cache(maxsize=2000)
def _known(said: str) -> tuple[str, str] | None:
    """Tester and words. Many tasks print the same, and of each both are asked for."""
    said = said[:SEARCHED_MOST]
    for symptom in SYMPTOMS:
        if symptom.sure and (found := _taking(symptom.said).match(said)) is not None:
            if "@" in (found.groupdict().get("page") or ""):
                continue  # perhaps of a password: then the host is none
            end = said.find("\n", found.end() - 1)
            words = said[:end] if end >= 0 else said
            return symptom.tester.format(**_values(found)), words
    return None


_taking = cache(taking)


def is_near(tester: str) -> bool:
    """Whether it means another thing on each machine."""
    return _NEAR.search(tester) is not None


def rule_from(out: str, err: str) -> tuple[BlockRule, Symptom] | None:
    """The rule that would have waited for what these outputs speak of, if they speak of anything that is known."""
    for stream, text in (("stderr", err), ("stdout", out)):
        for symptom in SYMPTOMS:
            if (found := _taking(symptom.said).search(text[-SEARCHED_MOST:])) is not None:
                if "@" in (found.groupdict().get("page") or ""):
                    continue
                said = _values(found)
                on = symptom.on.format(**{name: _literal(value) for name, value in said.items()})
                return BlockRule(on=f"{stream}:/{on}/", tester=symptom.tester.format(**said)), symptom
    return None


def _literal(text: str) -> str:
    """As a part of a pattern that people read."""
    return re.escape(text).replace("\\ ", " ")


def _values(found: Taken) -> dict[str, str]:
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    if "tls" in values:
        values["scheme"] = f"http{values['tls'].lower()}"
    if "scheme" in values:
        port = f":{values['port']}" if "port" in values else ""
        page = values.get("page", "").rstrip(").,;:]") or "/"
        values["url"] = f"{values['scheme']}://{values['host']}{port}{page}"
    if "path" in values:
        values["folder"] = posixpath.dirname(values["path"])
    return values
