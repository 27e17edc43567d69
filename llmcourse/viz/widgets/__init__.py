"""The widgets of the chapters.

Taught in: chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb
"""

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.viz.widgets.attention import AttentionMap
    from llmcourse.viz.widgets.bits import BitPattern
    from llmcourse.viz.widgets.block import BlockTapper
    from llmcourse.viz.widgets.buckets import BucketTimeline
    from llmcourse.viz.widgets.course import ProgressMap
    from llmcourse.viz.widgets.crash import CrashLab
    from llmcourse.viz.widgets.descent import Bowl, StepByHand
    from llmcourse.viz.widgets.goodput import GoodputPlanner
    from llmcourse.viz.widgets.graph import GraphStepper
    from llmcourse.viz.widgets.memory import MemoryTimeline
    from llmcourse.viz.widgets.mesh import MeshGrid
    from llmcourse.viz.widgets.model import ConfigExplorer, SamplingBoard
    from llmcourse.viz.widgets.player import SchedulePlayer
    from llmcourse.viz.widgets.race import OptimizerRace
    from llmcourse.viz.widgets.regimes import RateRegimes
    from llmcourse.viz.widgets.ring import RingStepper
    from llmcourse.viz.widgets.rotary import RotaryClocks
    from llmcourse.viz.widgets.router import RouterBoard
    from llmcourse.viz.widgets.run import RunScrubber, TrainingLoop
    from llmcourse.viz.widgets.schedule import ScheduleDesigner
    from llmcourse.viz.widgets.scrubber import WeightScrubber
    from llmcourse.viz.widgets.shares import ShareBar
    from llmcourse.viz.widgets.spikes import SpikeLab
    from llmcourse.viz.widgets.splitter import MatrixSplitter
    from llmcourse.viz.widgets.targets import TokenStrip
    from llmcourse.viz.widgets.tokens import MergeBoard, PackingBoard
    from llmcourse.viz.widgets.zero import ZeroBars

__all__ = [
    "AttentionMap",
    "BitPattern",
    "BlockTapper",
    "Bowl",
    "BucketTimeline",
    "ConfigExplorer",
    "CrashLab",
    "GoodputPlanner",
    "GraphStepper",
    "MatrixSplitter",
    "MemoryTimeline",
    "MergeBoard",
    "MeshGrid",
    "OptimizerRace",
    "PackingBoard",
    "ProgressMap",
    "RateRegimes",
    "RingStepper",
    "RotaryClocks",
    "RouterBoard",
    "RunScrubber",
    "SamplingBoard",
    "ScheduleDesigner",
    "SchedulePlayer",
    "ShareBar",
    "SpikeLab",
    "StepByHand",
    "TokenStrip",
    "TrainingLoop",
    "WeightScrubber",
    "ZeroBars",
]

lazy(__name__)
