"""The allocator setting keeps a freed block in the process."""

import subprocess
import sys

_SCRIPT = """
import sys
if sys.argv[1] == "keep":
    from spade_actors.model.allocator import keep_freed_memory
    keep_freed_memory()
import resource, torch
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.empty(20_000_000).fill_(1.0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, how], capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)


def test_blocks_freed_and_taken_again_cost_few_page_faults() -> None:
    assert 2 * _faults("keep") < _faults("default")
