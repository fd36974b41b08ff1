"""SQLite for actors: one writer thread, group commit, an answer only after the commit.

What always holds: a `write` that returned is on disk (WAL, synchronous FULL); writes happen in the order they were asked
for; a write that raises undoes only itself (savepoint) and raises to its caller; when the database cannot commit, every
write of that transaction and every later one gets `StoreError`, so nothing is acknowledged that is not there.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import trio
from outcome import Error, Outcome, Value

from spade_actors.runtime.errors import StoreError

T = TypeVar("T")
_BATCH = 512


class _Job:
    __slots__ = ("fn", "outcome", "task", "writes")

    def __init__(self, fn: Callable[[sqlite3.Connection], Any], writes: bool) -> None:
        self.fn = fn
        self.writes = writes
        self.outcome: Outcome[Any] | None = None
        self.task: trio.lowlevel.Task | None = None


class Store:
    """One SQLite file, owned by one process.

    Args:
        path: the file; its folder exists.
        schema: idempotent SQL (`CREATE TABLE IF NOT EXISTS ...`) run at opening.
        commit_ms: longest time a transaction stays open to take in writes that are already asked for.

    Open inside a trio loop; `async with Store(...) as store:` or `close()` at the end.
    """

    def __init__(self, path: Path, schema: str, commit_ms: float = 2.0) -> None:
        self._path = path
        self._commit_s = commit_ms / 1e3
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._broken: str | None = None
        self._closed = False
        self.commit_seconds = 0.0
        """what the last commit took"""
        self.commits = 0
        self._db = self._open(schema)
        self._thread = threading.Thread(target=self._serve, name=f"store {path.name}", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `fn(connection)` on the writer thread inside the shared transaction; returns its result after the commit.

        `fn` neither begins nor commits. Raises what `fn` raised, or `StoreError`.
        Cancellation: the write is carried out all the same, its result is dropped.
        """
        return cast(T, await self._submit(fn, True))

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `fn(connection)` on the same thread after all earlier writes; it must not write."""
        return cast(T, await self._submit(fn, False))

    def close(self) -> None:
        """Finishes what was asked for and closes the file. Blocks for at most one transaction."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
            self._thread.join()

    def _open(self, schema: str) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, cached_statements=256)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("PRAGMA cache_size = -8192")
            db.executescript(schema)
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: cannot open the database: {error}") from None
        return db

    async def _submit(self, fn: Callable[[sqlite3.Connection], Any], writes: bool) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._broken is not None or self._closed:
            raise StoreError(f"{self._path}: {self._broken or 'closed'}")
        job = _Job(fn, writes)
        job.task = trio.lowlevel.current_task()
        self._jobs.put(job)

        def abort(_: object) -> trio.lowlevel.Abort:
            job.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            stop = self._transaction(jobs)
            self._token.run_sync_soon(_deliver, jobs)
            if stop:
                break
        self._db.close()

    def _transaction(self, jobs: list[_Job]) -> bool:
        """Runs the first job and those already waiting, in one transaction; True when the store was closed meanwhile."""
        until = time.monotonic() + self._commit_s
        stop = False
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._run(jobs[0])
            while len(jobs) < _BATCH:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    stop = True
                    break
                jobs.append(job)
                self._run(job)
                if time.monotonic() > until:
                    break
            began = time.monotonic()
            self._db.execute("COMMIT")
            self.commit_seconds = time.monotonic() - began
            self.commits += 1
        except sqlite3.Error as error:
            self._broken = f"the database cannot write: {error}"
            for job in jobs:
                if job.writes or job.outcome is None:
                    job.outcome = Error(StoreError(f"{self._path}: {self._broken}"))
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return stop

    def _run(self, job: _Job) -> None:
        if self._broken is not None:
            job.outcome = Error(StoreError(f"{self._path}: {self._broken}"))
            return
        if not job.writes:
            job.outcome = _capture(job.fn, self._db)
            return
        self._db.execute("SAVEPOINT job")
        job.outcome = _capture(job.fn, self._db)
        if isinstance(job.outcome, Error):
            if isinstance(job.outcome.error, sqlite3.OperationalError) and not self._db.in_transaction:
                raise job.outcome.error  # disk full and I/O errors roll the whole transaction back
            self._db.execute("ROLLBACK TO job")
        self._db.execute("RELEASE job")


def _capture(fn: Callable[[sqlite3.Connection], Any], db: sqlite3.Connection) -> Outcome[Any]:
    try:
        return Value(fn(db))
    except Exception as error:  # belongs to the one who asked for the write
        return Error(error)


def _deliver(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.task is not None and job.outcome is not None:
            task, job.task = job.task, None
            trio.lowlevel.reschedule(task, job.outcome)
