"""A claim that does not hold is noticed by whoever runs the benchmarks. What they measure is no test's business."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = sorted(
    {path.stem for path in HERE.glob("*.py")} - {"all", "fake_workers", "harness", "tapis_manager"}
)


def script(directory: Path, name: str, text: str) -> str:
    (directory / f"{name}.py").write_text(
        f"import sys\nsys.path.insert(0, {str(HERE)!r})\nfrom harness import *\n{text}\n"
    )
    return str(directory / name)


def run(*words: str) -> tuple[int, str]:
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_a_script_that_misses_one_of_its_claims_exits_with_1(tmp_path: Path) -> None:
    good, bad = "claim('speed', 3, 2)", "claim('size', 3, 2, at_most=True)"
    assert run(script(tmp_path, "good", f"{good}\nend()") + ".py")[0] == 0
    code, out = run(script(tmp_path, "bad", f"{bad}\n{good}\nend()") + ".py")
    assert code == 1
    assert [line[:4] for line in out.splitlines()] == ["MISS", "ok  "]


def test_all_runs_the_rest_after_a_miss_and_lists_what_was_missed_at_its_end(tmp_path: Path) -> None:
    names = [
        script(tmp_path, "bad", "claim('size', 3, 2, at_most=True)\nend()"),
        script(tmp_path, "broken", "raise ValueError"),
        script(tmp_path, "good", "claim('speed', 3, 2)\nend()"),
    ]
    code, out = run(str(HERE / "all.py"), *names)
    assert code == 1
    assert "ok   speed" in out
    told = out.partition("== 2 missed\n")[2].splitlines()
    assert [line.rpartition("/")[2].partition(":")[0] for line in told] == ["bad", "broken"]
    assert run(str(HERE / "all.py"), names[2]) == (
        0,
        f"\n== {names[2]}\nok   speed: 3 (bar ≥ 2)\n\n== all hold\n",
    )


def test_the_workers_of_the_crash_benchmark_come_back_and_nothing_is_run_twice() -> None:
    """However long that takes."""
    _, out = run(str(HERE / "crash.py"), "400")
    assert "all 500 finished, each run once" in out


def test_the_seed_mode_of_the_load_test_lets_go_ten_at_a_time(tmp_path: Path) -> None:
    made = script(
        tmp_path,
        "seed",
        f"""
import tapis_manager
from tercel.manager.options import ManagerOptions
from tercel.manager.service import Manager
from tercel.stores.memory import MemoryStore
store = MemoryStore()
manager = Manager(ManagerOptions(data=Path({str(tmp_path)!r})), store, store.load(), None)
print("waves of", manager.machine.settings.fixed_wave)
""",
    )
    assert run(made + ".py") == (0, "waves of 10\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_among_all_is_described_and_tells_its_misses(name: str) -> None:
    assert f'"{name}"' in (HERE / "all.py").read_text()
    assert f"benchmarks/{name}.py " in (HERE / "README.md").read_text()
    assert (HERE / f"{name}.py").read_text().splitlines()[-1].strip() in ("run(main())", "end()")
