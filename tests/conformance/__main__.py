"""`python -m tests.conformance FILE…`: plays case files against a live service; without files, those in the tree."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import grpc

from tests.conformance.cases import BadCase, Case, read_cases
from tests.conformance.play import Player
from tests.conformance.server import ServerError, running_server

CASES = Path(__file__).resolve().parent / "cases"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.conformance", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="case files: .jsonl or .csv")
    files = parser.parse_args(arguments).files or sorted(CASES.iterdir())
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    signal.signal(signal.SIGTERM, leave)
    cases = [case for file in files for case in read_cases(file)]
    try:
        failed = play_all(cases)
    except ServerError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


def play_all(cases: Sequence[Case | BadCase]) -> int:
    """Prints a line for each failure and says how many there were."""
    failed = 0
    with running_server() as address, grpc.insecure_channel(address) as channel:
        player = Player(channel)
        for case in cases:
            why = case.why if isinstance(case, BadCase) else player.play(case)
            if why is not None:
                failed += 1
                print(f"FAILED {case.case_id}: {why}", flush=True)
    return failed


def leave(signal_number: int, frame: FrameType | None) -> None:
    """Ends by way of every `finally`, so that the service is stopped."""
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    raise SystemExit(main())
