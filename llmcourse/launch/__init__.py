"""Jobs for clusters: the training command, in a script for Slurm or a manifest for Kubernetes.

Taught in: chapters/31_failures.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.launch.job import LaunchConfig, torchrun_arguments, train_arguments
    from llmcourse.launch.kubernetes import manifest, manifest_text
    from llmcourse.launch.slurm import batch_script

__all__ = [
    "LaunchConfig",
    "batch_script",
    "manifest",
    "manifest_text",
    "torchrun_arguments",
    "train_arguments",
]

lazy(__name__)
