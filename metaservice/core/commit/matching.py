"""Which partitions a transaction read, told at a bounded cost.

A condition that names its partitions (equality or IN on every partition column, and ORs of such) becomes a set of
names: asking it costs one look-up, however many names it holds. Any other condition is compiled and tried once for each
partition; what that costs, in comparisons, is taken from the `Work` that judging may do.

    day IN ('2026-11-01', '2026-11-02') AND region = 'eu'     two names
    day >= '2026-11-01' OR region = 'eu'                      two comparisons for each partition
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from metaservice.core import limits
from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.model import Read
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.predicates import (
    COMPARISONS,
    AllOf,
    AnyOf,
    Compare,
    InList,
    IsNull,
    Literal,
    Not,
    Predicate,
    SqlValue,
    StartsWith,
    columns_of,
)
from metaservice.core.table.pruning import conjuncts, fixed_values

Values = Mapping[str, SqlValue]
Truth = Callable[[Values], bool | None]
Fixed = Mapping[str, tuple[SqlValue, ...]]  # the values that a column may have


_COST_OF_A_TRY: Final = 10  # of finding a partition's values, in comparisons


class Paused(Exception):  # noqa: N818 - no error: the work goes on in the next turn
    """The share of this turn is used up."""


class Work:
    """The work that judging may do: in this turn, and in all turns together on conditions. The unit is one comparison.

    Every turn makes progress, however small it is: its first try is always allowed, and results are kept.
    """

    __slots__ = ("_most", "_spent", "_tried", "left")

    def __init__(self, turn: float = float("inf"), most: float = limits.JUDGE_COMPARISONS_MAX) -> None:
        self._most = most
        self._spent = 0
        self.begin_turn(turn)

    def begin_turn(self, turn: float) -> None:
        self.left = turn
        self._tried = False

    def begin_winner(self, cost: int) -> None:
        """Raises Paused at the end of the turn."""
        if self.left <= 0:
            raise Paused
        self.left -= cost

    def begin_try(self, cost: int) -> None:
        """Accounts for a condition on a partition or a file. Raises Paused at the end of the turn."""
        if self.left <= 0 and self._tried:
            raise Paused
        self._tried = True
        self.left -= cost + _COST_OF_A_TRY

    def compare(self, cost: int) -> None:
        """Accounts for conditions on one partition. Refused if all of them take too long."""
        self.begin_try(cost)
        self._spent += cost
        if self._spent > self._most:
            raise too_costly(self._spent)


def too_costly(cost: int) -> MetaError:
    return invalid(
        "PREDICATE_TOO_COSTLY",
        "judging the conditions takes too many comparisons: name the partitions (equality or IN on every partition "
        "column), or split the change",
        comparisons=cost,
        most=limits.JUDGE_COMPARISONS_MAX,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """The partitions of one read: all, some by name, or those where its condition is true."""

    names: frozenset[str] = frozenset()
    everywhere: bool = False
    holds: Truth | None = None
    cost: int = 0


def condition_of(read: Read, partitioning: Partitioning) -> Condition:
    """Return the condition of a read, which is stored with it. Any thread may call first."""
    if read.partitions is not None:
        return Condition(read.partitions)
    key = partitioning.columns
    condition = read.prepared.get(key)
    if condition is None:
        condition = read.prepared[key] = _condition(read.predicate, partitioning)
    return cast(Condition, condition)


def _condition(predicate: Predicate, partitioning: Partitioning) -> Condition:
    if not columns_of(predicate) <= set(partitioning.names):
        return Condition(everywhere=True)  # a column that was renamed since
    names = named_partitions(predicate, partitioning)
    if names is not None:
        return Condition(names)
    holds, cost = compiled(predicate)
    if cost == 0:
        return Condition(everywhere=holds({}) is True)
    return Condition(holds=holds, cost=cost)


class PartitionReads:
    """Some reads of one change, to ask whether one of them touches a partition."""

    def __init__(self, reads: Iterable[Read], partitioning: Partitioning, work: Work) -> None:
        conditions = [condition_of(read, partitioning) for read in reads]
        named = [condition.names for condition in conditions if condition.names]
        self._names = named[0] if len(named) == 1 else frozenset[str]().union(*named)
        self._everywhere = any(condition.everywhere for condition in conditions)
        self._tests = [condition.holds for condition in conditions if condition.holds is not None]
        self._partitioning = partitioning
        self._work = work
        self._tried: dict[str, bool] = {}
        self._tried_for_blocks: dict[str, bool] = {}
        self.cost = sum(condition.cost for condition in conditions)

    def touches(self, partition: str) -> bool:
        if self._everywhere or partition in self._names:
            return True
        if not self._tests:
            return False
        is_touched = self._tried.get(partition)
        if is_touched is None:
            self._work.compare(self.cost)
            values = self._partitioning.decode(partition)
            is_touched = any(holds(values) is True for holds in self._tests)
            if len(self._tried) >= limits.PARTITIONS_TRIED_MAX:
                self._tried.clear()
            self._tried[partition] = is_touched
        return is_touched

    def may_touch(self, partition: str) -> bool:
        """The same, or true where trying takes long. A refusal as too costly depends on `touches` alone."""
        if self._everywhere or partition in self._names:
            return True
        if not self._tests:
            return False
        holds_there = self._tried.get(partition)
        if holds_there is None:
            holds_there = self._tried_for_blocks.get(partition)
        if holds_there is None:
            if self.cost > limits.WINNER_BLOCK_COMPARISONS_MAX:
                return True
            self._work.begin_try(self.cost)
            values = self._partitioning.decode(partition)
            holds_there = any(holds(values) is True for holds in self._tests)
            if len(self._tried_for_blocks) >= limits.PARTITIONS_TRIED_MAX:
                self._tried_for_blocks.clear()
            self._tried_for_blocks[partition] = holds_there
        return holds_there


# -- conditions that name their partitions -----------------------------------------------------------------------------


def named_partitions(predicate: Predicate, partitioning: Partitioning) -> frozenset[str] | None:
    """Return all partitions where a condition is true; None if it doesn't name them."""
    if not partitioning.columns:
        return None
    encoded: set[str] = set()
    for case in predicate.operands if isinstance(predicate, AnyOf) else (predicate,):
        fixed = _fixed_by_all(case)
        if fixed is None or fixed.keys() != set(partitioning.names):
            return None
        rows: list[tuple[SqlValue, ...]] = [()]
        for name in partitioning.names:
            if len(rows) * len(fixed[name]) > limits.PLAN_PARTITIONS_MAX:
                return None
            rows = [(*before, value) for before in rows for value in fixed[name]]
        encoded.update(partitioning.encode_leading(row) for row in rows)
        if len(encoded) > limits.PLAN_PARTITIONS_MAX:
            return None
    return frozenset(encoded)


def _fixed_by_all(predicate: Predicate) -> Fixed | None:
    """Return the values of columns that are each fixed once, by equality; None for any other condition."""
    by_column: dict[str, tuple[SqlValue, ...]] = {}
    for part in conjuncts(predicate):
        fixed = _fixed(part)
        if fixed is None or fixed[0] in by_column:
            return None
        by_column[fixed[0]] = fixed[1]
    return by_column


def _fixed(part: Predicate) -> tuple[str, tuple[SqlValue, ...]] | None:
    return _fixed_by_any(part.operands) if isinstance(part, AnyOf) else fixed_values(part)


def _fixed_by_any(operands: Sequence[Predicate]) -> tuple[str, tuple[SqlValue, ...]] | None:
    """Return the column and values of a condition such as `day = 1 OR day = 2`."""
    values: dict[SqlValue, None] = {}
    columns = set()
    for operand in operands:
        fixed = _fixed(operand)
        if fixed is None:
            return None
        columns.add(fixed[0])
        values.update(dict.fromkeys(fixed[1]))
    return (columns.pop(), tuple(values)) if len(columns) == 1 else None


# -- conditions that are tried -----------------------------------------------------------------------------------------


def compiled(predicate: Predicate) -> tuple[Truth, int]:
    """The condition's SQL truth as a function of a row's values, and its maximum number of comparisons."""
    match predicate:
        case Literal(truth=answer):
            return (lambda _: answer), 0
        case Compare(column=column, comparison=comparison, value=value):
            return _comparing(column, comparison, value), 1
        case InList(column=column, values=values):
            return _in_list(column, values), 1
        case IsNull(column=column):
            return (lambda row: row[column] is None), 1
        case StartsWith(column=column, prefix=prefix):
            return _starting(column, prefix), 1
        case Not(operand=operand):
            inside, cost = compiled(operand)
            return _opposite(inside), cost
        case AllOf(operands=operands):
            parts = [compiled(operand) for operand in operands]
            return _connected([part for part, _ in parts], decides=False), sum(cost for _, cost in parts)
        case AnyOf(operands=operands):
            parts = [compiled(operand) for operand in _merged(operands)]
            return _connected([part for part, _ in parts], decides=True), sum(cost for _, cost in parts)


def leaves_of(predicate: Predicate) -> int:
    """The comparisons of a condition as given."""
    match predicate:
        case AllOf(operands=operands) | AnyOf(operands=operands):
            return sum(leaves_of(operand) for operand in operands)
        case Not(operand=operand):
            return leaves_of(operand)
        case _:
            return 1


def _merged(operands: Sequence[Predicate]) -> list[Predicate]:
    """Equalities of an OR, as one IN for each column."""
    values: dict[str, list[SqlValue]] = {}
    others: list[Predicate] = []
    for operand in operands:
        match operand:
            case Compare(column=column, comparison="=", value=value):
                values.setdefault(column, []).append(value)
            case InList(column=column, values=listed):
                values.setdefault(column, []).extend(listed)
            case _:
                others.append(operand)
    return [*(InList(column, tuple(listed)) for column, listed in values.items()), *others]


def _comparing(column: str, comparison: str, value: SqlValue) -> Truth:
    if value is None:
        return _unknown
    compare = COMPARISONS[comparison]

    def answer(row: Values) -> bool | None:
        actual = row[column]
        return None if actual is None else compare(actual, value)

    return answer


def _in_list(column: str, values: Sequence[SqlValue]) -> Truth:
    listed = frozenset(value for value in values if value is not None)
    otherwise: Final = None if None in values else False

    def answer(row: Values) -> bool | None:
        actual = row[column]
        return None if actual is None else (True if actual in listed else otherwise)

    return answer


def _starting(column: str, prefix: str) -> Truth:
    def answer(row: Values) -> bool | None:
        actual = row[column]
        return actual.startswith(prefix) if isinstance(actual, str) else None

    return answer


def _opposite(inside: Truth) -> Truth:
    def answer(row: Values) -> bool | None:
        verdict = inside(row)
        return None if verdict is None else not verdict

    return answer


def _connected(parts: Sequence[Truth], *, decides: bool) -> Truth:
    """Connect parts by AND (decided by false) or OR (decided by true)."""

    def answer(row: Values) -> bool | None:
        unknown = False
        for part in parts:
            verdict = part(row)
            if verdict is decides:
                return decides
            unknown = unknown or verdict is None
        return None if unknown else not decides

    return answer


def _unknown(_: Values) -> None:
    return None
