"""The whole machine: from a crawl to a report, in one folder, by one command.

    llmcourse capstone --config capstone.toml --out runs/capstone

Taught in: chapters/45_capstone.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.capstone.config import CapstoneConfig, shipped
    from llmcourse_labs.capstone.exam import marbles
    from llmcourse_labs.capstone.log import read_log
    from llmcourse_labs.capstone.run import STAGES, hashes, run_capstone
    from llmcourse_labs.capstone.training import train

lazy(__name__)
