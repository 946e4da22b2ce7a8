"""Writes what the console shows of the documents: the runbooks as HTML, and the rules of races as data.

A console has no network, so both are in its package. `--check` compares instead of writing.
"""

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from metaservice.core.commit.row_level import CHECKS, MEETINGS
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Operation, Rule
from metaservice.core.table.profiles import CLASS_OF, STANDS, OpClass
from tools.generated import wants_check, write_or_check
from tools.proto_comments import list_elements
from tools.wire import ROOT, descriptors

RUNBOOKS = "docs/runbooks.md"
PAGE = "worker/console/templates/runbook_texts.html"
RULES = "worker/console/race_rules.json"
RULE = ".ConflictRule.CONFLICT_RULE_"
ELSEWHERE = re.compile(r"\[([^\]]+)\]\((?!#)([^)#]+)(?:#[^)]*)?\)")
MARK = re.compile(r"<!--.*?-->\n", re.DOTALL)


def runbooks(text: str) -> str:
    """The page without its title. Links to other documents become their names: the console doesn't have them."""
    body = MARK.sub("", text).partition("\n## ")[1:]
    sections = ELSEWHERE.sub(lambda link: f"{link[1]} (`docs/{Path(link[2]).name}`)", "".join(body).strip())
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(sections)
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", tokens[at + 1].content.lower().replace(" ", "-"))
        elif token.type == "th_open":
            token.attrSet("scope", "col")
    html = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>')
    return f"{{% raw %}}\n{html.replace('</table>', '</table></div>').strip()}\n{{% endraw %}}\n"


def rules() -> dict[str, Any]:
    """The classes of operations, who may follow whom by profile, and the meaning of each rule."""
    classes = list(OpClass)
    return {
        "classes": [each.value for each in classes],
        "class_of": {
            operation.name: classes.index(CLASS_OF[operation]) for operation in Operation if operation in CLASS_OF
        },
        "pairs": [
            {
                "title": "The outcome table",
                "rules": [Rule.OUTCOME_TABLE.name],
                "profiles": [],  # of any: a table's profile can have been another one
                "outcomes": [
                    ["commits" if earlier in STANDS[later] else "conflict" for later in classes] for earlier in classes
                ],
            },
            {
                "title": f"Under {Profile.ROW_LEVEL}",
                "rules": sorted({check.rule.name for check in CHECKS}),
                "profiles": [Profile.ROW_LEVEL],
                "outcomes": [[MEETINGS[later][earlier].value for later in classes] for earlier in classes],
            },
        ],
        "meanings": meanings(),
    }


def meanings() -> dict[str, str]:
    """The comment of each rule on the wire."""
    with tempfile.TemporaryDirectory() as scratch:
        (file,) = descriptors(ROOT, ["protos/laketx/v1/common.proto"], Path(scratch))
        elements = [each for each in list_elements(file) if RULE in each.name and "UNSPECIFIED" not in each.name]
    return {each.name.rpartition(RULE)[2]: each.comment.replace("\n", " ") for each in elements}


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    documents = {
        PAGE: runbooks((root / RUNBOOKS).read_text(encoding="utf-8")),
        RULES: json.dumps(rules(), indent=1) + "\n",
    }
    return write_or_check(documents, root, check=wants_check(arguments, __doc__))


if __name__ == "__main__":
    sys.exit(main())
