"""The command line:  llmcourse export --run runs/a --to exported/a."""

import sys

from llmcourse.base.command_line import run_command
from llmcourse_labs.export.folder import main

if __name__ == "__main__":
    sys.exit(run_command(main))
