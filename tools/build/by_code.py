"""An execution belongs to the code of a notebook's cells, whatever tags and captions they have.

Importing this tells the cache of executions so; the tools that fill it do, and the book's extension
that reads it.  The page then keeps the metadata that the extension has given it.
"""

from functools import partialmethod

from jupyter_cache.cache.main import JupyterCacheBase as Cache

Cache.create_hashed_notebook = partialmethod(Cache.create_hashed_notebook, cell_metadata=())
Cache.merge_match_into_notebook = partialmethod(Cache.merge_match_into_notebook, cell_meta=())
