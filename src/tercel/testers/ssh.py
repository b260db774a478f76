"""`ssh:HOST`: a server of SSH greets there. `ssh-auth:USER@HOST`: it lets this user in, with the keys of whoever asks."""

import re

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.addresses import connected, join_host_port, reason, split_host_port
from tercel.testers.contract import Surroundings
from tercel.testers.running import run
from tercel.testers.verdicts import not_cleared, printable

PORT = 22
_LINES_MOST = 50
"""Before the banner a server may say other things."""
_LINE_MOST_BYTES = 1024
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
_REFUSED = 255
"""With which `ssh` itself fails; any other code is that of the command, so it was let in."""


def _normal(text: str, kind: str) -> str:
    host, port = split_host_port(text, f"a host, as in {kind}:login.lab", PORT)
    return join_host_port(host, port).removesuffix(f":{PORT}")


class SshTester:
    kind = "ssh"
    place = Place.SITE
    summary = "a server of SSH greets: ssh:login.lab or ssh:login.lab:2222"

    def normalise(self, text: str) -> str:
        return _normal(text.strip(), self.kind)

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        host, port = split_host_port(text, "a host", PORT)
        try:
            async with connected(host, port) as (reader, _):
                for _number in range(_LINES_MOST):
                    line = await reader.readline()
                    if line.startswith(b"SSH-"):
                        banner = line[:100].decode(errors="replace").strip()
                        return Verdict(True, note=f"{text} greets with {printable(banner)}")
                    if not line.endswith(b"\n") or len(line) > _LINE_MOST_BYTES:
                        break
        except OSError as error:
            return not_cleared(reason(error, text))
        except ValueError:  # a line longer than the stream's limit
            pass
        return not_cleared(f"{text} accepts connections, but does not greet as SSH does")


class SshAuthTester:
    kind = "ssh-auth"
    place = Place.SITE
    summary = "a user is let in by SSH, without a password: ssh-auth:ada@login.lab"

    def __init__(self, options: tuple[str, ...] = ()) -> None:
        """`options`: for the `ssh` program, beside those that keep it from asking anybody."""
        self._options = options

    def normalise(self, text: str) -> str:
        user, at, place = text.strip().rpartition("@")
        if not at or not _USER.fullmatch(user):
            raise UsageError(f"{text[:100]!r} names no user and host; write ssh-auth:ada@login.lab")
        return f"{user}@{_normal(place, self.kind)}"

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:
        user, _, place = text.rpartition("@")
        host, port = split_host_port(place, "a host", PORT)
        patience = f"ConnectTimeout={max(1, int(surroundings.limit_s))}"
        argv = ["ssh", *self._options, "-T", "-n", "-p", str(port), "-l", user]
        for option in (*_UNATTENDED, patience):
            argv += ["-o", option]
        ended = await run([*argv, "--", host, "true"])
        if ended.code >= 0 and ended.code != _REFUSED:
            return Verdict(True, note=f"{text} is let in")
        return not_cleared(f"{text} is not let in: {ended.last_line or ended.how}")


_UNATTENDED = (
    "BatchMode=yes",
    "NumberOfPasswordPrompts=0",
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
    "LogLevel=ERROR",
)
"""It asks nobody, leaves nothing behind, and lends its keys to no one."""
