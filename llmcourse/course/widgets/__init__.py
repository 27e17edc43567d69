"""The widgets of the chapters.

Taught in: chapters/00_how_to_use.ipynb, chapters/01_whole_run.ipynb, chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/04_pairs_to_transformer.ipynb, chapters/05_tokens.ipynb, chapters/06_crawl_to_corpus.ipynb, chapters/09_data_loading.ipynb, chapters/10_blueprint.ipynb, chapters/11_attention.ipynb, chapters/12_feed_forward.ipynb, chapters/13_norm_rope_silu.ipynb, chapters/14_mixture_of_experts.ipynb, chapters/15_splitting_the_model.ipynb, chapters/16_cross_entropy.ipynb, chapters/17_targets_and_masks.ipynb, chapters/18_backpropagation.ipynb, chapters/19_llama_backward.ipynb, chapters/20_activation_memory.ipynb, chapters/21_pipelines.ipynb, chapters/22_collectives.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb, chapters/25_optimizers.ipynb, chapters/26_learning_rate.ipynb, chapters/27_mixed_precision.ipynb, chapters/28_stability.ipynb, chapters/29_weights.ipynb, chapters/30_checkpoints.ipynb, chapters/31_failures.ipynb, chapters/32_batch_size.ipynb, chapters/35_cost.ipynb, chapters/37_hardware.ipynb, chapters/38_orchestration.ipynb, chapters/39_why_16384.ipynb, chapters/40_sft.ipynb, chapters/41_preferences.ipynb, chapters/42_reward_hacking.ipynb, chapters/43_benchmarks.ipynb, chapters/44_contamination.ipynb, chapters/45_capstone.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse.course.widgets.answers import AnswerLoss
    from llmcourse.course.widgets.attention import AttentionMap
    from llmcourse.course.widgets.axis import LossAxis
    from llmcourse.course.widgets.batch import BatchSlider
    from llmcourse.course.widgets.bill import CostCalculator
    from llmcourse.course.widgets.bits import BitPattern
    from llmcourse.course.widgets.block import BlockTapper
    from llmcourse.course.widgets.buckets import BucketTimeline
    from llmcourse.course.widgets.cluster import ClusterBoard
    from llmcourse.course.widgets.collapse import CollapseLab
    from llmcourse.course.widgets.course import ProgressMap
    from llmcourse.course.widgets.crash import CrashLab
    from llmcourse.course.widgets.descent import Bowl, StepByHand
    from llmcourse.course.widgets.epochs import EpochBoard
    from llmcourse.course.widgets.funnel import FunnelBoard
    from llmcourse.course.widgets.goodput import GoodputPlanner
    from llmcourse.course.widgets.graph import GraphStepper
    from llmcourse.course.widgets.hacking import HackingBoard
    from llmcourse.course.widgets.intervals import IntervalLab
    from llmcourse.course.widgets.isoflop import IsoflopValley
    from llmcourse.course.widgets.key_ring import KeyRing
    from llmcourse.course.widgets.leaks import LeakBoard
    from llmcourse.course.widgets.live import LiveRun
    from llmcourse.course.widgets.live_gradient import LiveGradient
    from llmcourse.course.widgets.live_labs import LiveCrash, LiveRanks, LiveSpike
    from llmcourse.course.widgets.live_prompt import LivePrompt
    from llmcourse.course.widgets.machine import MachineBoard
    from llmcourse.course.widgets.memory import MemoryTimeline
    from llmcourse.course.widgets.mesh import MeshGrid
    from llmcourse.course.widgets.mixture import MixtureTriangle
    from llmcourse.course.widgets.model import ConfigExplorer, SamplingBoard
    from llmcourse.course.widgets.norm import NormAndGate
    from llmcourse.course.widgets.order import OrderBoard
    from llmcourse.course.widgets.player import SchedulePlayer
    from llmcourse.course.widgets.preferences import PreferenceBoard
    from llmcourse.course.widgets.race import OptimizerRace
    from llmcourse.course.widgets.regimes import RateRegimes
    from llmcourse.course.widgets.ring import RingStepper
    from llmcourse.course.widgets.roofline import RooflineBoard
    from llmcourse.course.widgets.rotary import RotaryClocks
    from llmcourse.course.widgets.router import RouterBoard
    from llmcourse.course.widgets.run import RunScrubber, TrainingLoop
    from llmcourse.course.widgets.schedule import ScheduleDesigner
    from llmcourse.course.widgets.scrubber import WeightScrubber
    from llmcourse.course.widgets.shares import ShareBar
    from llmcourse.course.widgets.simulator import StepSimulator
    from llmcourse.course.widgets.spikes import SpikeLab
    from llmcourse.course.widgets.splitter import MatrixSplitter
    from llmcourse.course.widgets.targets import TokenStrip
    from llmcourse.course.widgets.tokens import MergeBoard, PackingBoard
    from llmcourse.course.widgets.wavelengths import WavelengthChart
    from llmcourse.course.widgets.zero import ZeroBars

lazy(__name__)
