"""The story that docs/pictures/timeline.svg tells is what the rules make of it."""

from metaservice.core.table.model import Change, Conflict, FileKind, Operation, Scope, TableCommit
from tests.unit.by_hand import ONE, TWO, Table, reading
from tools.gen_timeline import FIRST_VERSION, STORY, Act


def begin(table: Table, act: Act) -> Change:
    partition = {1: ONE, 2: TWO}[act.day]
    if act.operation is Operation.MINOR_COMPACT:
        return table.compact(act.operation, list(table.live(partition)), act.who, {}, partition=partition)
    kind = FileKind.BASE if act.operation is Operation.OVERWRITE else FileKind.DELTA
    file = table.file(act.who, {}, kind, partition)
    match act.operation:
        case Operation.OVERWRITE:
            return table.change(act.operation, adds=[file], scope=Scope(frozenset({partition})))
        case Operation.UPDATE:
            return table.change(act.operation, adds=[file], reads=reading(partition))
        case _:
            return table.change(act.operation, adds=[file])


def test_the_picture_tells_the_truth() -> None:
    table = Table()
    for version in range(1, FIRST_VERSION):
        table.insert(f"before-{version}", {}, TWO if version % 2 else ONE)
    begun: dict[str, Change] = {}
    answers: dict[str, TableCommit | Conflict] = {}
    moments = sorted([(act.begin, act) for act in STORY] + [(act.end, act) for act in STORY], key=lambda each: each[0])
    for moment, act in moments:
        if moment == act.begin:
            begun[act.who] = begin(table, act)
        else:
            answers[act.who] = table.decide(begun[act.who])
    for act in STORY:
        answer = answers[act.who]
        if isinstance(answer, Conflict):
            assert (act.version, answer.winner.version) == (None, 7), act
        else:
            assert (answer.version, answer.rebased_over) == (act.version, act.rebased_over), act
    assert table.live(ONE) == {"Ana": 7}, "Bo's file went too"
