"""The story that docs/pictures/timeline.svg tells is what the rules make of it."""

from metaservice.core.model import (
    Change,
    Conflict,
    Entry,
    FileKind,
    Group,
    Operation,
    Profile,
    Read,
    Scope,
    TableCommit,
)
from metaservice.core.predicates import TRUE
from tests.house.tree import ROOT
from tests.model.world import Content, Job, World
from tools.gen_timeline import FIRST_VERSION, STORY, TARGET, Act, draw, main


class Table(World):
    """Commits anything: the picture shows no rows."""

    def expected(self, job: Job) -> dict[tuple[str, int], int]:
        return {}

    def entry(self, path: str, day: int, kind: FileKind) -> Entry:
        self.contents[path] = Content({})
        return Entry(path, f"p={day}", 0, kind, 1, 100, b"")

    def change_of(self, act: Act) -> Change:
        kind = FileKind.BASE if act.operation is Operation.OVERWRITE else FileKind.DELTA
        entry = self.entry(act.who, act.day, kind)
        change = Change("t", act.operation, self.head, adds=[entry])
        if act.operation is Operation.OVERWRITE:
            change.scope = Scope(frozenset({entry.partition}))
        elif act.operation is Operation.MINOR_COMPACT:
            inputs = tuple(live.entry.path for live in self.snapshots.live(self.head, entry.partition))
            change.groups = (Group(entry.partition, 0, inputs, (act.who,)),)
        elif act.operation is Operation.UPDATE:
            change.reads = (Read(TRUE, frozenset({entry.partition})),)
        return change


def test_the_picture_tells_the_truth() -> None:
    table = Table(Profile.MAXCOMPUTE, keyed=True, seed=0)
    for version in range(1, FIRST_VERSION):
        entry = table.entry(f"before-{version}", 1 + version % 2, FileKind.DELTA)
        assert isinstance(table.commit(Job(Change("t", Operation.INSERT, table.head, adds=[entry]))), TableCommit)
    begun: dict[str, Change] = {}
    answers: dict[str, TableCommit | Conflict] = {}
    moments = sorted([(act.begin, act) for act in STORY] + [(act.end, act) for act in STORY], key=lambda each: each[0])
    for moment, act in moments:
        if moment == act.begin:
            begun[act.who] = table.change_of(act)
        else:
            answers[act.who] = table.commit(Job(begun[act.who]))
    for act in STORY:
        answer = answers[act.who]
        if isinstance(answer, Conflict):
            assert (act.version, answer.winner.version) == (None, 7), act
        else:
            assert (answer.version, answer.rebased_over) == (act.version, act.rebased_over), act
    assert {one.entry.path for one in table.snapshots.live(table.head, "p=1")} == {"Ana"}, "Bo's file went too"


def test_the_picture_is_fresh() -> None:
    assert main(["--check"]) == 0, "run `make docs`"
    assert (ROOT / TARGET).read_text(encoding="utf-8") == draw()
