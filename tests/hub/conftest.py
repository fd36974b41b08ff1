import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))  # the socket helpers of the runtime's tests
