"""The whole machine: from a crawl to a report, in one folder, by one command.

    llmcourse capstone --config capstone.toml --out runs/capstone

Taught in: chapters/45_capstone.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.capstone.config import CapstoneConfig, shipped
    from llmcourse.capstone.exam import marbles
    from llmcourse.capstone.log import read_log
    from llmcourse.capstone.run import hashes, run_capstone

lazy(__name__)
