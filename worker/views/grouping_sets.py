"""ROLLUP, CUBE and GROUPING SETS as lists of the keys that each of their sets has.

GROUP BY a, ROLLUP (b, c)          (a, b, c) (a, b) (a)
GROUP BY CUBE (a, b)               (a, b) (a) (b) ()
GROUP BY GROUPING SETS ((a), ())   (a) ()
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from worker.views.dialect import DIALECT
from worker.views.operators import NoRule

SETS_MAX: Final = 64
SETS: Final = (exp.Rollup, exp.Cube, exp.GroupingSets)
Keys = tuple[exp.Expr, ...]


def grouping_sets(group: exp.Group) -> list[Keys]:
    """Return the sets of a GROUP BY; one without such words has one."""
    if {name for name, value in group.args.items() if value} - {"expressions", "all"}:
        raise NoRule("such grouping sets have no rule yet")
    parts = [_sets_of(part) for part in group.expressions]
    sets = [tuple(dict.fromkeys(key for keys in each for key in keys)) for each in product(*parts)]
    if len(sets) > SETS_MAX:
        raise NoRule(f"more than {SETS_MAX} grouping sets have no rule")
    return sets


def _sets_of(part: exp.Expr) -> list[Keys]:
    if isinstance(part, exp.Rollup):
        columns = list(map(_keys_of, part.expressions))
        return [_joined(columns[:count]) for count in range(len(columns), -1, -1)]
    if isinstance(part, exp.Cube):
        columns = list(map(_keys_of, part.expressions))
        sizes = range(len(columns), -1, -1)
        return [_joined(chosen) for size in sizes for chosen in combinations(columns, size)]
    if isinstance(part, exp.GroupingSets):
        if any(isinstance(each, SETS) for each in part.expressions):
            raise NoRule("grouping sets in grouping sets have no rule yet")
        return list(map(_keys_of, part.expressions))
    return [(part,)]


def _keys_of(part: exp.Expr) -> Keys:
    """The keys of an element: one, or several in brackets, or none."""
    if isinstance(part, exp.Tuple):
        return tuple(part.expressions)
    return (part.unnest(),)


def _joined(parts: Sequence[Keys]) -> Keys:
    return tuple(key for keys in parts for key in keys)


def null_of(key: exp.Expr) -> str:
    """Return NULL as text, with the type of a key whose set lacks it."""
    kind = key.type
    is_whole = kind is not None and kind.this not in (exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL)
    if kind is None or not is_whole or (kind.this is exp.DataType.Type.DECIMAL and len(kind.expressions) < 2):
        raise NoRule("grouping sets of a key whose type only an engine can tell have no rule")
    return f"CAST(NULL AS {kind.sql(dialect=DIALECT)})"


def grouping_of(call: exp.Expr, keys: Collection[exp.Expr]) -> str:
    """Return what grouping() says of a set: a bit for each argument that is none of its keys, the first one highest."""
    bits = 0
    for argument in call.expressions:
        bits = 2 * bits + (argument not in keys)
    return f"CAST({bits} AS BIGINT)"
