"""A refusal says a sentence: one of its own, or that of its reason. None only repeats its reason."""

import ast
from collections.abc import Iterator

from metaservice.core.sentences import SENTENCES
from tests.house.tree import list_files, name_of

BEFORE_THE_SENTENCE = {"invalid": 1, "MetaError": 2}  # arguments


def without_a_sentence() -> Iterator[tuple[str, str]]:
    """Where something is refused with a reason alone, and with which."""
    for path in list_files(".py"):
        if not name_of(path).startswith("metaservice/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                arguments = BEFORE_THE_SENTENCE.get(node.func.id)
                if arguments == len(node.args) and isinstance(reason := node.args[-1], ast.Constant):
                    yield f"{name_of(path)}:{node.lineno}", str(reason.value)


def test_every_refusal_has_a_sentence() -> None:
    assert [f"{where} {reason}" for where, reason in without_a_sentence() if reason not in SENTENCES] == []


def test_every_sentence_is_said_somewhere() -> None:
    assert SENTENCES.keys() - {reason for _, reason in without_a_sentence()} == set()


def test_sentences_are_in_alphabetical_order_and_no_shouts() -> None:
    assert list(SENTENCES) == sorted(SENTENCES)
    assert [text for text in SENTENCES.values() if text.endswith(".") or len(text) > 110] == []
