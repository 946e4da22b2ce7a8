"""The one form of every benchmark: figures in, one table, one plot and one JSON list out.

A benchmark measures pieces of work, each several times after a warm-up, and hands every run's figure to a `Benchmark`.
The figure of a work is the median of its runs; the lowest and the highest stay visible. `finish()` prints the table,
saves `benchmarks/results/NAME.png` and, when the environment names a file in JSON, writes the list there. SCALE makes
the work smaller or larger.

    bench = Benchmark("commit", "Commits", packages=["grpcio"])
    bench.measure("one writer", one_writer, unit="ms", at_most=2.0)  # one_writer() answers a figure
    bench.add("32 writers", rates, unit="commits/s", at_least=1500, peers={"deltalake": 14.2})
    raise SystemExit(0 if bench.finish() else 1)
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from benchmarks import plot
from benchmarks.figures import figure_text

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
WORK = ROOT / ".bench" / "work"

Bound = Literal["least", "most"]


@dataclass(frozen=True)
class Result:
    """What one piece of work gave: every run's figure, what it should have been, and what peers reach."""

    work: str
    unit: str
    runs: Sequence[float]
    target: float | None = None
    bound: Bound = "least"
    peer_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    note: str = ""
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def figure(self) -> float:
        return statistics.median(self.runs)

    @property
    def peers(self) -> dict[str, float]:
        """Medians."""
        return {name: statistics.median(runs) for name, runs in self.peer_runs.items()}

    @property
    def holds(self) -> bool | None:
        """None where there is no target."""
        if self.target is None:
            return None
        return self.figure >= self.target if self.bound == "least" else self.figure <= self.target

    @property
    def target_text(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.bound == 'least' else '≤'} {figure_text(self.target)}"


class Benchmark:
    """Collects results; `finish` shows and saves them."""

    def __init__(
        self,
        name: str,
        title: str,
        packages: Sequence[str] = (),
        *,
        draw: Callable[[Path, str, str], None] | None = None,
    ) -> None:
        """`name` names the plot; `packages` are distributions whose versions belong to the machine's description.

        `draw` draws another plot than bars: to a path, with a title and a line about the machine.
        """
        self.name = name
        self.title = title
        self.results: list[Result] = []
        self._draw = draw or self._draw_bars
        self._machine = describe_machine(packages)
        self._log = Console(stderr=True)

    def measure(
        self,
        work: str,
        once: Callable[[], float],
        *,
        unit: str,
        at_least: float | None = None,
        at_most: float | None = None,
        peers: Mapping[str, float] | None = None,
        note: str = "",
        runs: int = 3,
        warm_ups: int = 1,
    ) -> Result:
        """Call `once`, which answers a figure, for every warm-up and every run, and add what the runs gave."""
        for _ in range(warm_ups):
            self._log.print(f"[dim]{work}: warming up")
            once()
        figures = []
        for run in range(1, runs + 1):
            figures.append(once())
            self._log.print(f"[dim]{work}: run {run} of {runs}: {figure_text(figures[-1])} {unit}")
        return self.add(work, figures, unit=unit, at_least=at_least, at_most=at_most, peers=peers, note=note)

    def add(
        self,
        work: str,
        runs: Sequence[float],
        *,
        unit: str,
        at_least: float | None = None,
        at_most: float | None = None,
        peers: Mapping[str, float | Sequence[float]] | None = None,
        note: str = "",
        details: Mapping[str, object] | None = None,
    ) -> Result:
        """Add figures that were measured elsewhere, one a run. At most one of the bounds is given.

        A peer has a figure, or one a run. `details` are more columns of the JSON list.
        """
        assert runs, f"{work} was never run"
        assert at_least is None or at_most is None, f"{work} has two targets"
        target, bound = (at_least, _LEAST) if at_most is None else (at_most, _MOST)
        peer_runs = {
            name: (figures,) if isinstance(figures, float | int) else tuple(figures)
            for name, figures in (peers or {}).items()
        }
        result = Result(work, unit, tuple(runs), target, bound, peer_runs, note, dict(details or {}))
        self.results.append(result)
        return result

    def finish(self) -> bool:
        """Print the table, save the plot, write the JSON that was asked for; whether every target holds."""
        Console(width=None if sys.stdout.isatty() else 150).print(self._table())
        path = RESULTS / f"{self.name}.png"
        self._draw(path, self.title, _machine_line(self._machine))
        print(f"plot: {path.relative_to(ROOT)}")
        if target := os.environ.get("JSON"):
            Path(target).write_text(json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"list: {target}")
        return all(result.holds is not False for result in self.results)

    def _draw_bars(self, path: Path, title: str, machine: str) -> None:
        plot.save(path, title, machine, [self._rows(unit) for unit in self._units()])

    def as_json(self) -> list[dict[str, object]]:
        """The list that programs read. `runs` has every run's figure; `target` is the least or the most."""
        return [
            {
                "work": result.work,
                "figure": result.figure,
                "unit": result.unit,
                "target": result.target,
                "bound": None if result.target is None else result.bound,
                "holds": result.holds,
                "peers": result.peers,
                "peer_runs": {name: list(runs) for name, runs in result.peer_runs.items() if len(runs) > 1},
                "runs": list(result.runs),
                "note": result.note,
                **result.details,
                "scale": scale(),
                "machine": self._machine,
            }
            for result in self.results
        ]

    def _table(self) -> Table:
        caption = "\n".join([_machine_line(self._machine), *([f"SCALE={scale():g}"] if scale() != 1 else [])])
        table = Table(title=self.title, caption=caption, caption_justify="left", title_justify="left")
        table.add_column("work", ratio=3)
        for column in ("figure", "lowest … highest", "unit", "target"):
            table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
        table.add_column("holds")
        table.add_column("peers", ratio=2)
        for result in self.results:
            table.add_row(
                f"{result.work}\n[dim]{result.note}" if result.note else result.work,
                f"[bold]{figure_text(result.figure)}",
                f"{figure_text(min(result.runs))} … {figure_text(max(result.runs))}" if len(result.runs) > 1 else "",
                result.unit,
                result.target_text,
                _HOLDS[result.holds],
                "\n".join(f"{name} {_with_range(runs)}" for name, runs in result.peer_runs.items()),
            )
        return table

    def _units(self) -> list[str]:
        return list(dict.fromkeys(result.unit for result in self.results))

    def _rows(self, unit: str) -> plot.Panel:
        rows = [
            plot.Row(
                label=result.work,
                target_text=result.target_text,
                bars=[
                    plot.Bar("LakeTX", result.figure, min(result.runs), max(result.runs), missed=result.holds is False),
                    *(
                        plot.Bar(name, statistics.median(runs), min(runs), max(runs))
                        for name, runs in result.peer_runs.items()
                    ),
                ],
                target=result.target,
            )
            for result in self.results
            if result.unit == unit
        ]
        return plot.Panel(unit, rows, figure_text)


def scale() -> float:
    """How much of the work to do; 1 is what the targets mean."""
    factor = float(os.environ.get("SCALE") or 1)
    assert factor > 0, "SCALE is above zero"
    return factor


def scaled(count: int, at_least: int = 1) -> int:
    """A count of the work at this run's scale."""
    return max(at_least, round(count * scale()))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run's data, on the file system that the machine's description names."""
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _with_range(runs: Sequence[float]) -> str:
    """The median of a peer's figures, and in brackets the lowest and the highest."""
    text = figure_text(statistics.median(runs))
    return f"{text} ({figure_text(min(runs))} … {figure_text(max(runs))})" if len(runs) > 1 else text


def describe_machine(packages: Sequence[str] = ()) -> dict[str, object]:
    """What a reader needs to judge the figures, and nothing that names the machine."""
    WORK.mkdir(parents=True, exist_ok=True)
    return {
        "cpu": _proc_field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": _file_system(WORK),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "load_at_start": round(os.getloadavg()[0], 2),
    }


_LEAST: Bound = "least"
_MOST: Bound = "most"
_HOLDS = {True: "[green]yes", False: "[bold red]no", None: ""}


def _machine_line(machine: Mapping[str, object]) -> str:
    packages = machine["packages"]
    assert isinstance(packages, dict)
    versions = "".join(f" · {name} {version}" for name, version in packages.items())
    return (
        f"{machine['cpu']} · {machine['cores']} cores · {machine['memory_gib']} GiB · {machine['kernel']}"
        f" · {machine['file_system']} · Python {machine['python']}{versions} · load at start {machine['load_at_start']}"
    )


def _proc_field(path: str, name: str) -> str | None:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _file_system(folder: Path) -> str:
    """The type of the mount that holds the folder: the longest mount point above it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    above = [(mount[1], mount[2]) for mount in mounts if folder.is_relative_to(mount[1])]
    return max(above, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]
