"""`tcp:HOST:PORT`: somebody accepts connections there. `dns:NAME`: the name has an address."""

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers.addresses import check_host, connected, join_host_port, reason, resolve, split_host_port
from tercel.testers.contract import Surroundings
from tercel.testers.verdicts import not_cleared


class TcpTester:
    kind = "tcp"
    place = Place.SITE
    summary = "a server accepts connections: tcp:licence.lab:27000"

    def normalise(self, text: str) -> str:
        return join_host_port(
            *split_host_port(text.strip(), "a host and a port, as in tcp:licence.lab:27000")
        )

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        host, port = split_host_port(text, "a host and a port")
        try:
            async with connected(host, port):
                return Verdict(True, note=f"{text} accepts connections")
        except OSError as error:
            return not_cleared(reason(error, text))


class DnsTester:
    kind = "dns"
    place = Place.SITE
    summary = "a name has an address: dns:store.lab"

    def normalise(self, text: str) -> str:
        name = check_host(text.strip())
        if ":" in name or name.rpartition(".")[2].isdecimal():
            raise UsageError(f"dns:{name}: that is an address already; name what must be found")
        return name

    async def test(self, text: str, surroundings: Surroundings) -> Verdict:  # noqa: ARG002
        try:
            found = await resolve(text)
        except OSError as error:
            return not_cleared(reason(error, text))
        return Verdict(True, note=f"{text} is {', '.join(found[:3])}")
