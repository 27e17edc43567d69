"""The widgets of the chapters.

Taught in: chapters/00_how_to_use.ipynb, chapters/01_whole_run.ipynb, chapters/02_step_by_hand.ipynb, chapters/03_downhill.ipynb, chapters/04_pairs_to_transformer.ipynb, chapters/05_tokens.ipynb, chapters/06_crawl_to_corpus.ipynb, chapters/09_data_loading.ipynb, chapters/10_blueprint.ipynb, chapters/11_attention.ipynb, chapters/12_feed_forward.ipynb, chapters/13_norm_rope_silu.ipynb, chapters/14_mixture_of_experts.ipynb, chapters/15_splitting_the_model.ipynb, chapters/16_cross_entropy.ipynb, chapters/17_targets_and_masks.ipynb, chapters/18_backpropagation.ipynb, chapters/19_llama_backward.ipynb, chapters/20_activation_memory.ipynb, chapters/21_pipelines.ipynb, chapters/22_collectives.ipynb, chapters/23_data_parallel.ipynb, chapters/24_zero.ipynb, chapters/25_optimizers.ipynb, chapters/26_learning_rate.ipynb, chapters/27_mixed_precision.ipynb, chapters/28_stability.ipynb, chapters/29_weights.ipynb, chapters/30_checkpoints.ipynb, chapters/31_failures.ipynb, chapters/32_batch_size.ipynb, chapters/35_cost.ipynb, chapters/37_hardware.ipynb, chapters/38_orchestration.ipynb, chapters/39_why_16384.ipynb, chapters/40_sft.ipynb, chapters/41_preferences.ipynb, chapters/42_reward_hacking.ipynb, chapters/43_benchmarks.ipynb, chapters/44_contamination.ipynb, chapters/45_capstone.ipynb
"""  # noqa: E501 - one line, which tests and pages read

from typing import TYPE_CHECKING

from llmcourse import lazy

if TYPE_CHECKING:
    from llmcourse_classroom.widgets.answers import AnswerLoss
    from llmcourse_classroom.widgets.attention import AttentionMap
    from llmcourse_classroom.widgets.axis import LossAxis
    from llmcourse_classroom.widgets.batch import BatchSlider
    from llmcourse_classroom.widgets.bill import CostCalculator
    from llmcourse_classroom.widgets.bits import BitPattern
    from llmcourse_classroom.widgets.block import BlockTapper
    from llmcourse_classroom.widgets.buckets import BucketTimeline
    from llmcourse_classroom.widgets.cluster import ClusterBoard
    from llmcourse_classroom.widgets.collapse import CollapseLab
    from llmcourse_classroom.widgets.course import ProgressMap
    from llmcourse_classroom.widgets.crash import CrashLab
    from llmcourse_classroom.widgets.descent import Bowl, StepByHand
    from llmcourse_classroom.widgets.few_bits import FewBitsBoard
    from llmcourse_classroom.widgets.funnel import FunnelBoard
    from llmcourse_classroom.widgets.goodput import GoodputPlanner
    from llmcourse_classroom.widgets.graph import GraphStepper
    from llmcourse_classroom.widgets.hacking import HackingBoard
    from llmcourse_classroom.widgets.intervals import IntervalLab
    from llmcourse_classroom.widgets.isoflop import IsoflopValley
    from llmcourse_classroom.widgets.key_ring import KeyRing
    from llmcourse_classroom.widgets.leaks import LeakBoard
    from llmcourse_classroom.widgets.lens import LensBoard
    from llmcourse_classroom.widgets.live import LiveRun
    from llmcourse_classroom.widgets.live_gradient import LiveGradient
    from llmcourse_classroom.widgets.live_labs import LiveCrash, LiveEpochs, LiveRanks, LiveSpike
    from llmcourse_classroom.widgets.live_prompt import LivePrompt
    from llmcourse_classroom.widgets.machine import MachineBoard
    from llmcourse_classroom.widgets.memory import MemoryTimeline
    from llmcourse_classroom.widgets.mesh import MeshGrid
    from llmcourse_classroom.widgets.mixture import MixtureTriangle
    from llmcourse_classroom.widgets.model import ConfigExplorer, SamplingBoard
    from llmcourse_classroom.widgets.norm import NormAndGate
    from llmcourse_classroom.widgets.order import OrderBoard
    from llmcourse_classroom.widgets.pass_at_k import PassAtK
    from llmcourse_classroom.widgets.player import SchedulePlayer
    from llmcourse_classroom.widgets.preferences import PreferenceBoard
    from llmcourse_classroom.widgets.race import OptimizerRace
    from llmcourse_classroom.widgets.regimes import RateRegimes
    from llmcourse_classroom.widgets.ring import RingStepper
    from llmcourse_classroom.widgets.roofline import RooflineBoard
    from llmcourse_classroom.widgets.rotary import RotaryClocks
    from llmcourse_classroom.widgets.router import RouterBoard
    from llmcourse_classroom.widgets.run import RunScrubber, TrainingLoop
    from llmcourse_classroom.widgets.schedule import ScheduleDesigner
    from llmcourse_classroom.widgets.scrubber import WeightScrubber
    from llmcourse_classroom.widgets.serving import ServingBoard
    from llmcourse_classroom.widgets.shares import ShareBar
    from llmcourse_classroom.widgets.simulator import StepSimulator
    from llmcourse_classroom.widgets.spikes import SpikeLab
    from llmcourse_classroom.widgets.splitter import MatrixSplitter
    from llmcourse_classroom.widgets.targets import TokenStrip
    from llmcourse_classroom.widgets.tokens import MergeBoard, PackingBoard
    from llmcourse_classroom.widgets.tuning import TuningPlane
    from llmcourse_classroom.widgets.wavelengths import WavelengthChart
    from llmcourse_classroom.widgets.zero import ZeroBars

lazy(__name__)
