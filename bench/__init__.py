"""Benchmarks against peers: both sides measured in turn, in one process, on one thread.

    python -m bench            every benchmark, and the table in bench/README.md
    python -m bench --quick    fewer repeats; prints only

Ratios are ours over the peer's, above 1 where ours is better.  Absolute times depend on the
machine; ratios are what is compared.
"""
