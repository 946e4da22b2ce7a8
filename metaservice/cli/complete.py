"""`laketx __complete`: what may stand where the cursor is; the scripts of `laketx completion` ask it.

    laketx __complete 3 laketx versions --server localhost:1 or      (word 3 begins with "or": names of tables)

A line for each word that may stand there: the word, a tab, what it means. A line `:files` stands for "names of files".
"""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import ShellComplete

from metaservice.cli.command import Passing, command
from metaservice.cli.output import Session
from metaservice.shared.terminal import printable

FILES: Final = ":files"


@command("__complete", kind=Passing)
def run(session: Session, options: tuple[str, ...]) -> None:
    """Print what may stand at the cursor, or nothing: who presses TAB gets no errors."""
    if not options or not options[0].isdecimal():
        return
    at, words = int(options[0][:9]), options[1:]
    before = [each for each in words[1:at] if each != "="]  # bash breaks `--output=js` into `--output`, `=`, `js`
    current = words[at] if at < len(words) else ""
    prefix = current[: current.index("=") + 1] if current.startswith("--") and "=" in current else ""
    root = click.get_current_context().find_root().command
    with Session(session.now_us, session.environment) as asking:
        for each in ShellComplete(root, {"obj": asking}, "laketx", "").get_completions(before, current):
            text = FILES if each.type == "file" else printable(prefix + each.value)
            session.write(f"{text}\t{printable(each.help or '')}")
