import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress

import pytest
from idle import IdleChild, start_idle_child


@pytest.fixture(scope="session", autouse=True)
def idle_child() -> Iterator[IdleChild]:
    with tempfile.TemporaryDirectory(prefix="spade-i-") as folder:
        child = start_idle_child(folder)
        yield child
        child.process.kill()
        child.process.wait()
        with suppress(OSError):
            os.close(child.pipe)
