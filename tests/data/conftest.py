"""The tokens that tests of orders read."""

import numpy as np
import pytest

from llmcourse.data import TokenShards, write_shards


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The tokens 0, 1, 2 and so on, so that a token says where it stands."""
    folder = tmp_path_factory.mktemp("counted")
    how = {"tokenizer_fingerprint": "none", "vocab_size": 500, "shard_tokens": 37}
    write_shards(np.arange(500), folder, **how)
    return TokenShards(folder)
