import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from spade_actors.runtime.errors import StoreError
from spade_actors.runtime.store import Store

SCHEMA = "CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY)"


def insert(n: int) -> Callable[[sqlite3.Connection], int]:
    return lambda db: db.execute("INSERT INTO t VALUES (?)", (n,)).rowcount


def count(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM t").fetchone()[0])


def run(path: Path, test: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Store(path / "s.sqlite", SCHEMA) as store:
            await test(store)

    trio.run(main)


def test_what_was_written_is_there_for_another_connection_when_write_returns(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        assert await store.write(insert(1)) == 1
        other = sqlite3.connect(tmp_path / "s.sqlite")
        assert count(other) == 1
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        other.close()
        assert await store.read(count) == 1

    run(tmp_path, test)


def test_a_write_that_raises_undoes_only_itself(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        outcomes: list[str] = []

        def bad(db: sqlite3.Connection) -> None:
            insert(100)(db)
            raise ValueError("no")

        async def write(n: int) -> None:
            if n % 3:
                await store.write(insert(n))
                return
            try:
                await store.write(bad)
            except ValueError as error:
                outcomes.append(str(error))

        async with trio.open_nursery() as nursery:
            for n in range(30):
                nursery.start_soon(write, n)
        assert outcomes == ["no"] * 10
        assert await store.read(count) == 20
        with pytest.raises(sqlite3.IntegrityError):
            await store.write(insert(1))

    run(tmp_path, test)


def test_writes_that_wait_share_a_commit(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        gate = threading.Event()

        async def hold() -> None:
            await store.write(lambda db: gate.wait(10))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            for n in range(100):
                nursery.start_soon(store.write, insert(n))
            await trio.testing.wait_all_tasks_blocked()
            before = store.commits
            gate.set()
        assert await store.read(count) == 100
        assert store.commits - before <= 60

    run(tmp_path, test)


def test_a_cancelled_write_is_carried_out(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, insert(7))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert await store.read(count) == 1

    run(tmp_path, test)


def test_a_database_that_cannot_grow_acknowledges_nothing_and_says_so(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda db: db.execute("CREATE TABLE big (x BLOB)"))
        pages = await store.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await store.read(lambda db: db.execute(f"PRAGMA max_page_count = {pages + 2}"))
        with pytest.raises((StoreError, sqlite3.OperationalError), match="full"):
            await store.write(lambda db: db.execute("INSERT INTO big VALUES (zeroblob(1000000))"))

    run(tmp_path, test)


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.write(insert(1))

    run(tmp_path, test)


def test_a_path_that_cannot_be_opened_names_itself(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(StoreError, match="missing"):
            Store(tmp_path / "missing" / "s.sqlite", SCHEMA)

    trio.run(main)
