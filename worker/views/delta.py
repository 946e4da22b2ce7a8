"""The delta plan of a query, as SQL text: which rows come and go if its sources go from one version to another.

The text reads these relations, of a source `shop.orders`:

    "shop.orders@from", "shop.orders@to"   its rows at both versions; of one that did not change, only the second
    "shop.orders@none"                     no rows, for the types of its columns
    "shop.orders@changes"                  the rows that came and went, with N: 1 for a copy that came, -1 for one gone

A bag of rows with signed multiplicities N is a difference of bags: the query at `to` is the query at `from` plus it.

    a filter, a projection, UNION ALL   of the difference itself
    A JOIN B                            (difference of A) JOIN B(to), and A(from) JOIN (difference of B)
    A LEFT, SEMI or ANTI JOIN B         (difference of A) JOIN B(to), and of the keys in the difference of B the rows of
                                        A(from): joined with B(to), minus joined with B(from)
    GROUP BY, windows, FULL JOIN        the keys in the difference: their rows at `to`, minus their rows at `from`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from worker.views.operators import (
    LAKE,
    Aggregate,
    Constant,
    Filter,
    Join,
    Opaque,
    Operator,
    Project,
    Scan,
    UnionAll,
    Window,
    columns_of,
    quoted,
    sources_of,
)

N: Final = "_laketx_n"
FROM, TO, CHANGES, NONE = "from", "to", "changes", "none"
SIDES: Final = (FROM, TO, CHANGES, NONE)
JOINS: Final = {kind: f"{kind} JOIN" for kind in ("INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI")}


@dataclass(frozen=True, slots=True)
class Restriction:
    """Only rows of a relation count whose column has one of a step's keys."""

    column: str
    keys: str  # a text that returns them


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """The text of a difference: the query's columns and N, each row once. `restrictions` are by source and side."""

    text: str
    restrictions: Mapping[tuple[str, str], Restriction]


@dataclass(frozen=True, slots=True)
class SomeGroups:
    """Groups of an aggregate: a relation with their keys, k0, k1, …"""

    aggregate: Aggregate
    relation: str


def relation(source: str, side: str) -> str:
    """Return the name of a relation that plans read."""
    return quoted(f"{source}@{side}")


def whole_text(query: Operator, side: str = TO, changed: Collection[str] = ()) -> str:
    """Return the query at a version, as text; sources that did not change are read at `to`."""
    return _Texts(changed).at(query, side)


def delta_text(query: Operator, changed: Collection[str]) -> str | None:
    """Return the text of the difference; None if nothing can change."""
    plan = delta_plan(query, changed)
    return None if plan is None else plan.text


def delta_plan(query: Operator, changed: Collection[str], some: SomeGroups | None = None) -> DeltaPlan | None:
    """Return the plan of the difference; None if nothing can change. With `some`, only these groups count."""
    names = _names(columns_of(query))
    last = f"SELECT {names}, CAST(SUM({N}) AS BIGINT) AS {N} FROM difference GROUP BY {names} HAVING SUM({N}) <> 0"
    return plan_over(query, changed, last, some)


def plan_over(
    operator: Operator, changed: Collection[str], last: str, some: SomeGroups | None = None
) -> DeltaPlan | None:
    """Return the plan of a text over the relation `difference`, the rows of a difference that may cancel each other."""
    texts = _Texts(changed, some)
    difference = texts.delta(operator)
    if difference is None:
        return None
    steps = [f"{name} AS MATERIALIZED (\n  {text}\n)" for name, text in texts.steps]
    whole = ",\n".join([*steps, f"difference AS (\n  {difference}\n)"])
    restrictions = {
        place: Restriction(column, f"WITH {', '.join(steps[: step + 1])} SELECT k{at} AS k FROM {texts.steps[step][0]}")
        for place, (column, step, at) in texts.restrictions().items()
    }
    return DeltaPlan(f"WITH {whole}\n{last}", restrictions)


def relations_of(text: str, sources: Collection[str]) -> list[tuple[str, str]]:
    """Return the relations that a plan reads: a source and a side each."""
    return [(source, side) for source in sorted(sources) for side in SIDES if relation(source, side) in text]


class _Texts:
    """Texts of operators. `steps` are the named parts that a difference reads several times.

    Each use of a relation is counted, and each use of which only the rows with a step's keys count is noted: a relation
    all of whose uses are restricted alike can be read so.
    """

    def __init__(self, changed: Collection[str], some: SomeGroups | None = None) -> None:
        self._changed = frozenset(changed)
        self._some = some
        self.steps: list[tuple[str, str]] = []
        self._uses: Counter[tuple[str, str]] = Counter()
        self._restricted: dict[tuple[str, str], list[tuple[str, int, int]]] = {}

    def restrictions(self) -> dict[tuple[str, str], tuple[str, int, int]]:
        """Return the column, the step and the number of its key by relation, for relations whose every use has it."""
        return {
            place: uses[0]
            for place, uses in self._restricted.items()
            if len(uses) == self._uses[place] and len(set(uses)) == 1
        }

    # -- at a version

    def at(self, operator: Operator, side: str) -> str:
        match operator:
            case Scan(source, columns):
                return f"SELECT {_aliased(columns)} FROM {self._relation(source, side)}"
            case Constant(text, _):
                return f"SELECT * FROM ({text}) WHERE FALSE" if side == NONE else text
            case Filter(child, condition):
                return f"SELECT * FROM ({self.at(child, side)}) WHERE {condition}"
            case Project(child, columns):
                return f"SELECT {_listed(columns)} FROM ({self.at(child, side)})"
            case Join():
                return self._join(operator, self.at(operator.left, side), self.at(operator.right, side))
            case Aggregate():
                rows = self._grouped(operator, self.at(operator.child, side))
                return rows if operator.keys or side != NONE else f"{rows} HAVING FALSE"
            case Window(child, _, _):
                return self._windowed(operator, self.at(child, side))
            case UnionAll(children):
                return " UNION ALL ".join(f"({self.at(child, side)})" for child in children)
            case Opaque():
                text = operator.text
                for source in operator.sources:
                    where = self._relation(source, side)
                    text = text.replace(quoted(f"{LAKE}{source}"), where)
                return text

    def _relation(self, source: str, side: str) -> str:
        place = self._place(source, side)
        self._uses[place] += 1
        return relation(*place)

    def _place(self, source: str, side: str) -> tuple[str, str]:
        return source, TO if side == FROM and source not in self._changed else side

    @staticmethod
    def _grouped(operator: Aggregate, rows: str) -> str:
        groups = f" GROUP BY {', '.join(text for text, _ in operator.keys)}" if operator.keys else ""
        return f"SELECT {_listed((*operator.keys, *operator.aggregates))} FROM ({rows}){groups}"

    @staticmethod
    def _windowed(operator: Window, rows: str) -> str:
        for text, name in operator.calls:
            rows = f"SELECT *, {text} AS {quoted(name)} FROM ({rows})"
        return rows

    @staticmethod
    def _join(operator: Join, left: str, right: str, more: str = "") -> str:
        names = _names(columns_of(operator))
        return f"SELECT {names}{more} FROM ({left}) AS l {JOINS[operator.kind]} ({right}) AS r ON {operator.condition}"

    # -- differences

    def delta(self, operator: Operator) -> str | None:
        """Return the difference as text, with rows that may cancel each other; None if there is none."""
        if self._changed.isdisjoint(sources_of(operator)):
            return None
        match operator:
            case Scan(source, columns):
                return f"SELECT {_aliased(columns)}, {N} FROM {relation(source, CHANGES)}"
            case Filter(child, condition):
                return f"SELECT * FROM ({self.delta(child)}) WHERE {condition}"
            case Project(child, columns):
                return f"SELECT {_listed(columns)}, {N} FROM ({self.delta(child)})"
            case UnionAll(children):
                return _union([self._delta_or_none(child) for child in children])
            case Join(kind="INNER"):
                return self._inner_join(operator)
            case Join(kind="FULL"):
                return self._full_join(operator)
            case Join():
                return self._other_join(operator)
            case Aggregate():
                return self._groups(operator)
            case Window():
                return self._partitions(operator)
            case Opaque() | Constant():
                return _subtracted(operator, self.at(operator, TO), self.at(operator, FROM))

    def _delta_or_none(self, child: Operator) -> str:
        """The difference of an input of UNION ALL. One without a difference still has a say in the types."""
        return self.delta(child) or f"SELECT *, 1 AS {N} FROM ({self.at(child, NONE)})"

    def _inner_join(self, operator: Join) -> str:
        """Of the side that a difference is joined with, only the rows with keys in the difference count."""
        lefts, rights = [left for left, _ in operator.keys], [right for _, right in operator.keys]
        left, right = self.delta(operator.left), self.delta(operator.right)
        parts = []
        if left is not None:
            rows, other = self._beside(left, lefts, operator.right, TO, rights)
            parts.append(self._join(operator, rows, other, f", l.{N} AS {N}"))
        if right is not None:
            rows, other = self._beside(right, rights, operator.left, FROM, lefts)
            parts.append(self._join(operator, other, rows, f", r.{N} AS {N}"))
        return _union(parts)

    def _beside(
        self, difference: str, keys: Sequence[str], operator: Operator, side: str, others: Sequence[str]
    ) -> tuple[str, str]:
        """The rows of a difference, and those of an operator with their keys, and perhaps others."""
        if not keys:
            return difference, self.at(operator, side)
        rows = f"SELECT * FROM {self._step('rows', difference)}"
        step = self._step("keys", f"SELECT DISTINCT {_numbered(keys)} FROM ({rows})")
        return rows, self._read(operator, side, step, others)

    def _other_join(self, operator: Join) -> str:
        """The difference of a join that keeps the rows of one side, each with what the other side has for its keys.

        What came and went on the side that is kept is joined as it is. Of its other rows, those whose keys changed on
        the other side are joined again.
        """
        is_right = operator.kind == "RIGHT"
        kept, other = (operator.right, operator.left) if is_right else (operator.left, operator.right)
        pairs = [(right, left) if is_right else (left, right) for left, right in operator.keys]
        kept_keys, other_keys = [key for key, _ in pairs], [key for _, key in pairs]
        came, moved = self.delta(kept), self.delta(other)
        keys: list[str] = []
        if came is not None:
            came = f"SELECT * FROM {self._step('rows', came)}"
            keys.append(self._step("keys", f"SELECT DISTINCT {_numbered(kept_keys)} FROM ({came})"))
        if moved is not None:
            names = _names(columns_of(other))
            net = f"SELECT {names} FROM ({moved}) GROUP BY {names} HAVING SUM({N}) <> 0"
            typed = f"SELECT {_numbered(kept_keys)} FROM ({self.at(kept, NONE)})"
            keys.append(self._step("keys", f"SELECT {_numbered(other_keys)} FROM ({net}) UNION {typed}"))
        every = (
            keys[0] if len(keys) == 1 else self._step("keys", " UNION ".join(f"SELECT * FROM {each}" for each in keys))
        )

        def joined(rows: str, side: str, among: str, n: str) -> str:
            others = self._among(other, side, among, other_keys)
            return self._join(operator, *((others, rows) if is_right else (rows, others)), f", {n} AS {N}")

        parts = [] if came is None else [joined(came, TO, every, f"{'r' if is_right else 'l'}.{N}")]
        if moved is not None:
            rows = f"SELECT * FROM {self._step('rows', self._among(kept, FROM, keys[-1], kept_keys))}"
            parts += [joined(rows, TO, every, "1"), joined(rows, FROM, keys[-1], "-1")]
        return _union(parts)

    def _full_join(self, operator: Join) -> str:
        lefts, rights = [left for left, _ in operator.keys], [right for _, right in operator.keys]
        sides = ((self.delta(operator.left), lefts), (self.delta(operator.right), rights))
        changed = [f"SELECT {_numbered(keys)} FROM ({text})" for text, keys in sides if text is not None]
        keys = self._step("keys", f"SELECT DISTINCT * FROM ({_union(changed)})")

        def joined(side: str) -> str:
            left = self._among(operator.left, side, keys, lefts)
            return self._join(operator, left, self._among(operator.right, side, keys, rights))

        return _subtracted(operator, joined(TO), joined(FROM))

    def _groups(self, operator: Aggregate) -> str:
        if not operator.keys:
            return _subtracted(operator, self.at(operator, TO), self.at(operator, FROM))
        named = _numbered([text for text, _ in operator.keys])
        if self._some is not None and self._some.aggregate is operator:
            keys = self._step("keys", f"SELECT * FROM {quoted(self._some.relation)}")
        else:
            keys = self._step("keys", f"SELECT DISTINCT {named} FROM ({self.delta(operator.child)})")

        def grouped(side: str) -> str:
            rows = self._among(operator.child, side, keys, [text for text, _ in operator.keys])
            return self._grouped(operator, rows)

        return _subtracted(operator, grouped(TO), grouped(FROM))

    def _partitions(self, operator: Window) -> str:
        if not operator.keys:
            return _subtracted(operator, self.at(operator, TO), self.at(operator, FROM))
        keys = self._step("keys", f"SELECT DISTINCT {_numbered(operator.keys)} FROM ({self.delta(operator.child)})")

        def windowed(side: str) -> str:
            return self._windowed(operator, self._among(operator.child, side, keys, operator.keys))

        return _subtracted(operator, windowed(TO), windowed(FROM))

    def _among(self, operator: Operator, side: str, keys: str, expressions: Sequence[str]) -> str:
        """The rows whose keys are among those; NULL is a key like others."""
        rows = self._read(operator, side, keys, expressions)
        equal = " AND ".join(f"{text} IS NOT DISTINCT FROM {keys}.k{at}" for at, text in enumerate(expressions))
        return f"SELECT rows.* FROM ({rows}) AS rows SEMI JOIN {keys} ON {equal}"

    def _read(self, operator: Operator, side: str, keys: str, expressions: Sequence[str]) -> str:
        """The rows, of which only those with these keys count."""
        before = Counter(self._uses)
        step = next(at for at, (name, _) in enumerate(self.steps) if name == keys)
        rows = self.at(operator, side)
        for at, text in enumerate(expressions):
            column = origin(operator, text)
            place = None if column is None else self._place(column[0], side)
            if column is not None and place is not None and self._uses[place] - before[place] == 1:
                self._restricted.setdefault(place, []).append((column[1], step, at))
                break
        return rows

    def _step(self, what: str, text: str) -> str:
        name = f"{what}_{len(self.steps) + 1}"
        self.steps.append((name, text))
        return name


def origin(operator: Operator, text: str) -> tuple[str, str] | None:
    """Return the source and the column that an expression is, if rows with other values of it come from no other row.

    It has a NULL only if the column there has one.
    """
    match operator:
        case Scan(source, columns):
            return next(((source, column) for column, name in columns if quoted(name) == text), None)
        case Filter(child, _):
            return origin(child, text)
        case Window(child, keys, _):
            return origin(child, text) if text in keys else None
        case Project(child, columns):
            inner = next((inner for inner, name in columns if quoted(name) == text), None)
            return None if inner is None else origin(child, inner)
        case Join(kind="INNER"):
            return origin(operator.left, text) or origin(operator.right, text)
        case _:
            return None


def _subtracted(operator: Operator, after: str, before: str) -> str:
    names = _names(columns_of(operator))
    return f"SELECT {names}, 1 AS {N} FROM ({after}) UNION ALL SELECT {names}, -1 AS {N} FROM ({before})"


def _union(parts: Collection[str]) -> str:
    return " UNION ALL ".join(f"({part})" for part in parts)


def _numbered(keys: Sequence[str]) -> str:
    return ", ".join(f"{text} AS k{at}" for at, text in enumerate(keys))


def _names(names: Collection[str]) -> str:
    return ", ".join(map(quoted, names))


def _listed(columns: Collection[tuple[str, str]]) -> str:
    return ", ".join(f"{text} AS {quoted(name)}" for text, name in columns)


def _aliased(columns: Collection[tuple[str, str]]) -> str:
    return ", ".join(f"{quoted(text)} AS {quoted(name)}" for text, name in columns)
