"""Numbers of bytes: as people read them, and how many must be free. Imports nothing: the small processes that run tasks use it too."""


def size(number: int) -> str:
    """1536 MB as people read it: 1.5 GB (binary units)."""
    value = float(number)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1024 or unit == "TB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"


def least_free(disk_bytes: int) -> float:
    """What must be free of a worker's disk, or it takes no tasks and ends the one that takes most: 1 GiB, or 5 % of a small one."""
    return min(2**30, 0.05 * disk_bytes)


def duration(seconds: float) -> str:
    """About how long, in the unit that people would use."""
    seconds = max(0.0, seconds)
    for unit_s, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"
