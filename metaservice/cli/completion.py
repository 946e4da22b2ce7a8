"""`laketx completion`: the script that teaches a shell to complete `laketx`, by asking `laketx __complete`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import click

from metaservice.cli.command import command
from metaservice.cli.kinds import OneOf
from metaservice.cli.output import Session

BASH: Final = r"""# laketx completion for bash. In ~/.bashrc: source <(laketx completion bash)
_laketx() {
    local line word
    COMPREPLY=()
    while IFS= read -r line; do
        word="${line%%$'\t'*}"
        if [[ "$word" == ":files" ]]; then
            local file
            while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$2")
            compopt -o filenames 2>/dev/null
        else
            COMPREPLY+=("$word")
        fi
    done < <("$1" __complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
}
complete -F _laketx laketx
"""

ZSH: Final = r"""#compdef laketx
# laketx completion for zsh. In ~/.zshrc, after compinit: source <(laketx completion zsh)
_laketx() {
    local line word meaning
    local -a found
    while IFS= read -r line; do
        word="${line%%$'\t'*}"
        meaning="${line#*$'\t'}"
        if [[ "$word" == ":files" ]]; then
            _files
        else
            found+=("${word//:/\\:}${meaning:+:$meaning}")
        fi
    done < <("${words[1]}" __complete "$((CURRENT - 1))" "${words[@]}" 2>/dev/null)
    (( $#found )) && _describe 'laketx' found
}
if [[ "$funcstack[1]" == "_laketx" ]]; then _laketx "$@"; else compdef _laketx laketx; fi
"""

FISH: Final = r"""# laketx completion for fish. laketx completion fish > ~/.config/fish/completions/laketx.fish
function __laketx_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete (count $words) $words "$current" 2>/dev/null)
        if string match -q ':files*' -- $line
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c laketx -f -a '(__laketx_complete)'
"""

SCRIPTS: Final[Mapping[str, str]] = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@command("completion")
@click.argument("shell", type=OneOf(list(SCRIPTS)), metavar="SHELL", help="bash, zsh or fish.")
def run(session: Session, shell: str) -> None:
    """Print the script that completes commands, options and names of tables in a shell.

    laketx completion bash

    bash: put `source <(laketx completion bash)` into ~/.bashrc

    zsh: put `source <(laketx completion zsh)` into ~/.zshrc, after compinit

    fish: laketx completion fish > ~/.config/fish/completions/laketx.fish
    """
    del session
    sys.stdout.write(SCRIPTS[shell])
