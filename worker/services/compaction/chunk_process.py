"""A process that runs chunks of a compaction: pickled chunks come by stdin, pickled results go to stdout."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from worker.services.compaction.chunks import Chunk, Settings, run_chunk


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the worker decides whether its tasks end
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    work: SimpleQueue[tuple[Settings, Chunk]] = SimpleQueue()
    threading.Thread(target=_listen, args=[work], daemon=True).start()
    while True:
        settings, chunk = work.get()
        try:
            answer: Any = run_chunk(settings, chunk)
        except Exception as error:  # noqa: BLE001 - raised where the job runs
            answer = _sendable(error)
        pickle.dump(answer, answers)
        answers.flush()


def _listen(work: SimpleQueue[tuple[Settings, Chunk]]) -> None:
    """Ends the process with its input: the worker is done with it, or dead."""
    try:
        while True:
            work.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - of the worker
    except BaseException:  # noqa: BLE001 - it may be cut off anywhere
        os._exit(0)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever its constructor takes
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
