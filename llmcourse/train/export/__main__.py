"""The command line:  llmcourse export --run runs/a --to exported/a."""

import sys

from llmcourse.train.export.folder import main

if __name__ == "__main__":
    sys.exit(main())
