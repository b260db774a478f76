"""All testers that there are, and the one door to them: whatever a tester does, who asks gets a verdict, and gets it in time.

built in        asked in this process, so many at a time as they cost (lanes.py)
command, ssh-auth, get, put and those of third parties
                asked in a process of each kind (hosting.py)
given           kinds of the manager's own books: judged here, asked elsewhere
"""

import asyncio
import difflib
import resource
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint

import msgspec

from tercel.core.blocking import TESTER_MOST
from tercel.core.conditions import Place, Verdict
from tercel.core.errors import PassingFault, UsageError
from tercel.testers import entry_points
from tercel.testers.commands import CommandTester
from tercel.testers.contract import Surroundings, Tester
from tercel.testers.databases import DatabaseTester
from tercel.testers.files import file_testers
from tercel.testers.host_words import Begin
from tercel.testers.hosting import Hosted, HostFault
from tercel.testers.http import HttpTester
from tercel.testers.judging import judge
from tercel.testers.lanes import Lanes
from tercel.testers.ssh import SshAuthTester, SshTester
from tercel.testers.storage import CREDENTIALS, STORAGE, GetTester, PutTester
from tercel.testers.tcp import DnsTester, TcpTester
from tercel.testers.threads import Threads
from tercel.testers.times import TimeTester
from tercel.testers.verdicts import not_cleared, sound, why

MOMENT_S = 1.0
"""Beyond its limit, for a host to say how it went."""
LIMIT_MOST_S = 3600.0
JUDGE_LIMIT_S = 5.0
"""For a third party's tester to be imported, and to judge one text."""
HOST_MEM_BYTES = 2**30
COMMAND_MEM_BYTES = 4 * 2**30
"""Of one process."""
FILE_MOST_BYTES = 2**30


class KindRow(msgspec.Struct, frozen=True):
    """A kind of tester, for people."""

    kind: str
    place: Place | None
    """None: its package says so when it is first used."""
    summary: str
    origin: str
    """Empty: Tercel itself; else the package that it is from."""


class Testers:
    """Of one process. `close` it when nobody asks any more."""

    def __init__(self, given: Iterable[Tester] = ()) -> None:
        """`given`: kinds that somebody else asks, by books of their own; here they are only judged."""
        sockets, disks, programs = _lanes()
        self._in_process: dict[str, tuple[Tester, Lanes]] = {}
        remote: list[Tester] = [TcpTester(), DnsTester(), HttpTester("http"), HttpTester("https")]
        remote += [SshTester(), DatabaseTester()]
        for tester in remote:
            self._in_process[tester.kind] = (tester, sockets)
        for on_disk in file_testers():
            self._in_process[on_disk.kind] = (on_disk, disks)
        self._in_process["time"] = (TimeTester(), Lanes(quick=64, slow=1))  # never waits for anything
        hosted: tuple[Tester, ...] = (CommandTester(), SshAuthTester(), GetTester(), PutTester())
        self._programs: dict[str, Tester] = {each.kind: each for each in hosted}
        self._program_lanes = programs
        self._given = {tester.kind: tester for tester in given}
        self._hosted: dict[str, tuple[Hosted, Lanes]] = {}
        self._found: tuple[dict[str, EntryPoint], list[str]] | None = None
        self._problems: dict[str, str] = {}
        self._judges = Threads(hanging_most=32, each_most=8, running_most=4)
        self._judged = lru_cache(maxsize=1000)(self._judge_in_process)

    # -- what there is --------------------------------------------------------------------------------------

    def kinds(self) -> list[KindRow]:
        """All of them, by name. Imports no third party's."""
        own = [tester for tester, _ in self._in_process.values()]
        rows = [
            KindRow(t.kind, t.place, t.summary, "")
            for t in (*own, *self._programs.values(), *self._given.values())
        ]
        for kind, point in self._third_parties().items():
            package = entry_points.package_of(point)
            rows.append(KindRow(kind, None, f"see the package {package}", package))
        return sorted(rows, key=lambda row: row.kind)

    def problems(self) -> list[str]:
        """What is wrong with testers of third parties, as far as was seen."""
        self._third_parties()
        assert self._found is not None
        return [*self._found[1], *self._problems.values()]

    def is_own(self, kind: str) -> bool:
        """Whether it is no third party's."""
        return self._tester(kind.lower()) is not None

    def _third_parties(self) -> dict[str, EntryPoint]:
        if self._found is None:
            self._found = entry_points.find({*self._in_process, *self._programs, *self._given})
        return self._found[0]

    # -- judging --------------------------------------------------------------------------------------------

    def normalise(self, tester_text: str) -> tuple[str, Place]:
        """As its kind writes it, and where it is asked. UsageError if it means nothing.

        One of a third party's takes a process, hence up to some seconds: see `judge`.
        """
        kind, colon, text = tester_text.strip().partition(":")
        kind = kind.lower()
        if not colon or not text.strip() or len(tester_text) > TESTER_MOST:
            raise UsageError(
                f"{tester_text[:100]!r} is not a tester; write KIND:WHAT with at most {TESTER_MOST:,} characters, "
                "as in tcp:licence.lab:27000"
            )
        tester = self._tester(kind)
        if tester is not None:
            return f"{kind}:{tester.normalise(text)}", tester.place
        if kind not in self._third_parties():
            raise UsageError(self._unknown(kind))
        return self._judged(kind, text)

    async def judge(self, tester_text: str) -> tuple[str, Place]:
        """As `normalise`, without holding up anybody else of this process. PassingFault if too many are being judged."""
        if self._is_third_partys(tester_text):
            kind = tester_text.strip().partition(":")[0].lower()
            return await self._judges.call(f"judging {kind[:40]}", self.normalise, tester_text)
        return self.normalise(tester_text)

    def _is_third_partys(self, tester_text: str) -> bool:
        kind = tester_text.strip().partition(":")[0].lower()
        return self._tester(kind) is None and kind in self._third_parties()

    def _tester(self, kind: str) -> Tester | None:
        if kind in self._in_process:
            return self._in_process[kind][0]
        return self._programs.get(kind) or self._given.get(kind)

    def _unknown(self, kind: str) -> str:
        known = [row.kind for row in self.kinds()]
        near = difflib.get_close_matches(kind, known, 1)
        meant = f"did you mean {near[0]}? There" if near else "there"
        return f"{kind[:40]!r} is no kind of tester; {meant} are: {', '.join(known)}"

    def _judge_in_process(self, kind: str, text: str) -> tuple[str, Place]:
        try:
            ready, judged = judge(self._begin(kind), text, JUDGE_LIMIT_S)
        except HostFault as fault:
            self._problems[kind] = f"{kind!r} {fault}"
            raise UsageError(f"{kind}: the tester of this kind does not work here: it {fault}") from None
        if judged.wrong:
            raise UsageError(f"{kind}: {judged.wrong}")
        text = f"{kind}:{judged.text}"
        if len(text) > TESTER_MOST:
            raise UsageError(
                f"{kind}: its tester makes {len(text):,} characters of it; at most {TESTER_MOST:,}"
            )
        return text, ready.place

    # -- asking ---------------------------------------------------------------------------------------------

    async def ask(self, tester_text: str, surroundings: Surroundings) -> Verdict:
        """Whether it is there again. Raises nothing (but CancelledError), and takes little longer than the limit."""
        limit_s = min(surroundings.limit_s, LIMIT_MOST_S) if surroundings.limit_s > 0 else 0.0
        surroundings = msgspec.structs.replace(surroundings, limit_s=limit_s)
        kind, _, text = tester_text.partition(":")
        is_hosted = kind not in self._in_process
        try:
            async with asyncio.timeout(limit_s + (MOMENT_S if is_hosted else 0.0)):
                return sound(await self._ask(kind, text, surroundings))
        except TimeoutError:
            return not_cleared(f"no answer within {limit_s:g} s")
        except HostFault as fault:
            self._problems[kind] = f"{kind!r} {fault}"
            return not_cleared(f"its tester {fault}")
        except (PassingFault, UsageError) as fault:
            return not_cleared(str(fault))
        except Exception as error:
            return not_cleared(f"its tester failed: {type(error).__name__}: {why(error)}")

    async def _ask(self, kind: str, text: str, surroundings: Surroundings) -> Verdict:
        if kind in self._in_process:
            tester, lanes = self._in_process[kind]
            return await lanes.run(f"{kind}:{text}", lambda: tester.test(text, surroundings))
        if kind in self._given:
            return not_cleared(f"{kind}: is answered by the manager's own books, not here")
        if kind not in self._programs and kind not in self._third_parties():
            return not_cleared(self._unknown(kind))
        if kind not in self._hosted:
            lanes = self._program_lanes if kind in self._programs else Lanes(quick=32, slow=64)
            self._hosted[kind] = (Hosted(self._begin(kind)), lanes)
        hosted, lanes = self._hosted[kind]
        key = f"{kind}:{surroundings.cwd}:{text}"
        return await lanes.run(key, lambda: hosted.ask(text, surroundings))

    def _begin(self, kind: str) -> Begin:
        if kind in self._programs:
            of = type(self._programs[kind])
            target = f"{of.__module__}:{of.__name__}"
            if kind in STORAGE:
                return Begin(kind, target, COMMAND_MEM_BYTES, FILE_MOST_BYTES, sees=CREDENTIALS)
            return Begin(kind, target, COMMAND_MEM_BYTES, FILE_MOST_BYTES, subreaper=True)
        return Begin(kind, self._third_parties()[kind].value, HOST_MEM_BYTES, FILE_MOST_BYTES)

    @property
    def pids(self) -> list[int]:
        """Of the processes in which testers are asked now."""
        return [pid for hosted, _ in self._hosted.values() for pid in hosted.pids]

    async def close(self) -> None:
        """End all processes."""
        for hosted, _ in self._hosted.values():
            await hosted.close()


def _lanes() -> tuple[Lanes, Lanes, Lanes]:
    """For sockets, as many as files may be open; for file systems, as there are threads; for programs."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        files = 1 << 20
    sockets = Lanes(quick=min(max(files // 8, 16), 512), slow=min(max(files // 4, 32), 1024))
    return sockets, Lanes(quick=64, slow=128), Lanes(quick=16, slow=64)
