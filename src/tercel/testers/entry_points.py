"""Testers of third parties, as their packages name them: entry points of the group `tercel.testers`. Nothing is imported here."""

import re
from importlib.metadata import EntryPoint, entry_points

GROUP = "tercel.testers"
KIND = re.compile(r"[a-z][a-z0-9-]{0,40}")


def find(taken: set[str]) -> tuple[dict[str, EntryPoint], list[str]]:
    """Those that may be used, by kind; and what is wrong with the others."""
    found: dict[str, EntryPoint] = {}
    problems = []
    for point in entry_points(group=GROUP):
        name, of = point.name, package_of(point)
        if not KIND.fullmatch(name):
            problems.append(
                f"{name[:40]!r} of {of} is not a kind of tester: lower-case letters, digits and '-'"
            )
        elif name in taken:
            problems.append(f"{name!r} of {of} is not used: Tercel has a tester of that kind itself")
        elif name in found and found[name].value != point.value:
            problems.append(
                f"{name!r} of {of} is not used: {package_of(found[name])} has one of that kind too"
            )
        else:
            found.setdefault(name, point)
    return found, problems


def package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
