"""The ranks and the run that the tests of parallelism have, for torch's engine, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "parallel"))  # whose files name each other

from tests.parallel.conftest import alone, config, one_rank, pools, run  # noqa: F401
