"""Jobs for clusters: the training command, in a script for Slurm or a manifest for Kubernetes.

Taught in: chapters/38_orchestration.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_labs.scale.launch.job import LaunchConfig, torchrun_arguments, train_arguments
    from llmcourse_labs.scale.launch.kubernetes import manifest, manifest_text
    from llmcourse_labs.scale.launch.ranks import nodes_of_groups, rank_map, rank_table
    from llmcourse_labs.scale.launch.slurm import batch_script

lazy(__name__)
