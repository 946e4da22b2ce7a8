"""The reasons with which the code refuses, read out of its source, Python and Java: none can be forgotten.

In Python, a maker is a function that takes a reason: MetaError and the like, and every function that passes a parameter
of its own on to one. What a call gives as the reason is a word, a constant, or an expression over those.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from metaservice.core.errors import ErrorKind

JAVA_CONSTANT = re.compile(r'static final String (\w+) = "([A-Z][A-Z0-9_]{3,})"')
JAVA_CALL = re.compile(
    r"(?:\b(?<!SqlTransaction\.)(?:invalid|denied|refuse)\(\s*|\bERROR_KIND_(?P<kind>\w+),\s*)"
    r'(?:"(?P<word>[A-Z][A-Z0-9_]{3,})"|(?:\w+\.)?(?P<constant>[A-Z][A-Z_]+)\b)'
)
WORD = re.compile(r"[A-Z][A-Z0-9_]{3,}")
KINDS = frozenset(ErrorKind.__members__)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Maker:
    """Where a call names the reason and its kind; the kind may be the same for all."""

    reason: int
    kind: int | frozenset[str]
    reason_name: str = "reason"


MAKERS = {
    "MetaError": Maker(1, 0),
    "build_error": Maker(1, 0),
    "invalid": Maker(0, frozenset({"INVALID"})),
    "StoreUnusable": Maker(0, frozenset({"CORRUPT"})),
}
INPUT_MAKERS = {"InputError": Maker(0, frozenset())}  # Python's own refusals have no kind


@dataclass
class Reasons:
    """The kinds of each reason, by the module that raises it, and the calls whose reason the source doesn't tell."""

    by_module: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    unclear: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, set[str]]:
        return {reason: set().union(*kinds.values()) for reason, kinds in self.by_module.items()}

    def add(self, reason: str, module: str, kinds: Iterable[str]) -> None:
        self.by_module.setdefault(reason, {}).setdefault(module, set()).update(kinds)


def collect(sources: Mapping[str, str], known_makers: Mapping[str, Maker] = MAKERS) -> Reasons:
    """The reasons of modules, given as name and text."""
    trees = {name: ast.parse(text) for name, text in sources.items()}
    constants = {name: value for tree in trees.values() for name, value in _assignments(tree.body)}
    makers = dict(known_makers)
    _add_heirs(makers, trees.values())
    calls = [
        _Call(name, inside, call, constants) for name, tree in trees.items() for inside, call in _calls(tree, None)
    ]
    while True:
        known = len(makers)
        found = Reasons()
        for call in calls:
            _look(call, makers, found)
        if len(makers) == known:
            return found


@dataclass
class _Call:
    """A call in its surroundings."""

    module: str
    inside: Function | None
    call: ast.Call
    constants: Mapping[str, ast.expr]

    def known(self) -> Mapping[str, ast.expr]:
        """What names stand for here."""
        return {**self.constants, **dict(_assignments(ast.walk(self.inside) if self.inside is not None else ()))}

    def parameters(self) -> list[str]:
        named = [] if self.inside is None else [argument.arg for argument in self.inside.args.args]
        return [name for name in named if name not in {"self", "cls"}]

    def argument(self, position: int, name: str) -> ast.expr | None:
        if position < len(self.call.args):
            return self.call.args[position]
        return next((keyword.value for keyword in self.call.keywords if keyword.arg == name), None)


def _look(call: _Call, makers: dict[str, Maker], found: Reasons) -> None:
    maker = makers.get(_name(call.call.func))
    if maker is None or (call.inside is not None and call.inside.name in MAKERS):
        return
    given = call.argument(maker.reason, maker.reason_name)
    if given is None:
        return
    kinds = maker.kind if isinstance(maker.kind, frozenset) else _kinds(call.argument(maker.kind, "kind"), call.known())
    words = _words(given, call.known())
    for word in words:
        found.add(word, call.module, kinds)
    passed_on = isinstance(given, ast.Attribute) and given.attr == "reason"
    if words or passed_on:
        return
    parameters = call.parameters()
    if call.inside is not None and isinstance(given, ast.Name) and given.id in parameters:
        makers.setdefault(call.inside.name, Maker(parameters.index(given.id), kinds, given.id))
    else:
        found.unclear.append(f"{call.module}:{call.call.lineno}: {ast.unparse(given)}")


def _add_heirs(makers: dict[str, Maker], trees: Iterable[ast.AST]) -> None:
    """A class below a maker is one."""
    classes = [node for tree in trees for node in ast.iter_child_nodes(tree) if isinstance(node, ast.ClassDef)]
    for each in classes:
        for base in each.bases:
            maker = makers.get(_name(base))
            if maker is not None:
                makers.setdefault(each.name, maker)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _calls(node: ast.AST, inside: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, child if isinstance(child, Function) else inside)


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _nodes(given: ast.expr, known: Mapping[str, ast.expr], depth: int = 4) -> Iterator[ast.AST]:
    """Everything in an expression and in what its names stand for, save what a choice looks at."""
    if isinstance(given, ast.IfExp):
        yield from _nodes(given.body, known, depth)
        yield from _nodes(given.orelse, known, depth)
        return
    for node in ast.walk(given):
        yield node
        if isinstance(node, ast.Name) and node.id in known and depth:
            yield from _nodes(known[node.id], known, depth - 1)


def _words(given: ast.expr, known: Mapping[str, ast.expr]) -> set[str]:
    texts = {node.value for node in _nodes(given, known) if isinstance(node, ast.Constant)}
    return {text for text in texts if isinstance(text, str) and WORD.fullmatch(text)}


def _kinds(given: ast.expr | None, known: Mapping[str, ast.expr]) -> frozenset[str]:
    """Those that an expression names; where it names none, all."""
    nodes = _nodes(given, known) if given is not None else ()
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute)) & KINDS or KINDS


def collect_java(sources: Mapping[str, str]) -> Reasons:
    """The same of Java's: `LakeException.invalid`, and the like, with a word or a constant."""
    texts = sources.values()
    everywhere = {name: word for text in texts for name, word in JAVA_CONSTANT.findall(text)}
    reasons = Reasons()
    for module, text in sources.items():
        constants = {**everywhere, **dict(JAVA_CONSTANT.findall(text))}
        for call in JAVA_CALL.finditer(text):
            word = call["word"] or constants.get(call["constant"], "")
            if word:
                kind = call["kind"] or ("DENIED" if call[0].startswith("denied") else "INVALID")
                reasons.add(word, module, [kind])
            else:
                reasons.unclear.append(f"{module}: {call['constant']}")
    return reasons
