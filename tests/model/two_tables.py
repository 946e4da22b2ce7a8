"""Transactions over two tables, some of whose parts only read, and the serial orders that may explain them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from metaservice.core.commit import transaction_facts
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import Conflict, Operation, TableCommit
from tests.model.programs import Effect, Insert, InsertCount, Program, Programs, Search
from tests.model.world import PARTITIONS, Job, Rows

TABLES = 2


class Count(Program):
    """Reads, and changes no row."""

    operation = Operation.UPDATE

    def __init__(self, search: Search) -> None:
        self.search = search
        self.reads = (search.read(changes_all=False),)

    def run(self, rows: Rows) -> Effect:
        return Effect(self.search.of(rows))


Part = tuple[int, Program, Job, Effect]  # of a transaction: which table, and what is done to it


@dataclass
class Story:
    """Where two tables began, who changed a row in either, and where they ended."""

    before: list[Rows]
    after: list[Rows] = field(default_factory=list)
    committed: list[list[Part]] = field(default_factory=list)
    lost: int = 0


def play(profile: Profile, *, keyed: bool, seed: int, commits: int = 5) -> Story:
    """Transactions begin and commit in any order. Without blind appends: these may be overlooked."""
    makers = [Programs(profile, keyed=keyed, seed=seed * TABLES + number) for number in range(TABLES)]
    rng = makers[0].random
    for maker in makers:
        maker.first_files()
    story = Story([maker.world.read(maker.world.head) for maker in makers])
    waiting: list[list[Part]] = []
    for _ in range(commits * 12):
        if len(story.committed) >= commits:
            break
        if len(waiting) < 4 and rng.random() < 0.6:
            waiting.append(begun(makers))
        elif waiting:
            parts = waiting.pop(rng.randrange(len(waiting)))
            won = commit(makers, parts)
            changes = any(effect.hides or effect.puts or program.scope for _, program, _, effect in parts)
            story.committed += [parts] if won and changes else []
            story.lost += not won
    story.after = [maker.world.read(maker.world.head) for maker in makers]
    return story


def begun(makers: Sequence[Programs]) -> list[Part]:
    rng = makers[0].random
    numbers = rng.sample(range(TABLES), rng.choice((1, 2, 2)))
    programs = [some_program(makers[number]) for number in numbers]
    if len(programs) > 1 and rng.random() < 0.8:
        programs[0] = Count(makers[numbers[0]].search())
        if rng.random() < 0.5:
            there = makers[numbers[1]]
            programs[1] = InsertCount(there.search(), next(iter(there.new_rows([rng.choice(PARTITIONS)]))))
    return [(number, one, *makers[number].job(one)) for number, one in zip(numbers, programs, strict=True)]


def some_program(maker: Programs) -> Program:
    while True:
        program = maker.program()
        if not isinstance(program, Insert):
            return program


def commit(makers: Sequence[Programs], parts: Sequence[Part]) -> bool:
    """All or none."""
    transaction_facts.tell([job.change for _, _, job, _ in parts])
    answers = [makers[number].world.answer_to(job) for number, _, job, _ in parts]
    if any(isinstance(answer, Conflict) for answer in answers):
        return False
    for (number, _, job, _), answer in zip(parts, answers, strict=True):
        assert isinstance(answer, TableCommit)
        answer.footprint.shared = len(parts) > 1
        makers[number].world.accept(job, answer)
    return True


def serial_order(story: Story) -> list[int] | None:
    """An order in which each transaction sees in both tables what it saw; None: there is none."""

    def extend(order: list[int], tables: list[Rows]) -> list[int] | None:
        if len(order) == len(story.committed):
            return order if tables == story.after else None
        for number, parts in enumerate(story.committed):
            if number in order:
                continue
            after = [dict(rows) for rows in tables]
            for table, program, _, effect in parts:
                now = program.run(tables[table])
                if now.seen != effect.seen:
                    break
                after[table] = now.on(tables[table])
            else:
                found = extend([*order, number], after)
                if found is not None:
                    return found
        return None

    return extend([], [dict(rows) for rows in story.before])
