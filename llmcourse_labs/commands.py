"""The commands of the laboratories, by their names; a module is loaded when it is asked for."""

from llmcourse.base.command_line import Command

prepare = Command(
    "llmcourse_labs.curation.prepare",
    "make a tokenizer and shards of text of your own",
    "texts/ more.jsonl.gz --out data/",
)
tune = Command(
    "llmcourse_labs.tuning.tune",
    "teach a trained run to answer",
    "--start runs/a --replay 0.2 --out runs/chat",
)
chat = Command(
    "llmcourse_labs.tuning.chat",
    "talk to a fine-tuned run, or to a model of others",
    "--model smollm2",
    is_result=True,
)
curate = Command(
    "llmcourse_labs.curation.curate",
    "make clean documents of web pages or of text of your own",
    "pages/ --out curated/",
)
evaluate = Command(
    "llmcourse_labs.evaluate.command",
    "let a run or a model answer questions, with intervals",
    "--run runs/a --suite stories",
)
capstone = Command(
    "llmcourse_labs.capstone.__main__",
    "run the whole machine, from a crawl to a report",
    "--config capstone.toml --out runs/capstone",
)
report = Command(
    "llmcourse_labs.evaluate.report",
    "write one page of a run, each number with where it came from",
    "--run runs/a --out reports/a",
)
export = Command(
    "llmcourse_labs.export.folder",
    "write a run or a model for transformers, or for llama.cpp",
    "--run runs/a --to exported/a",
)
model = Command(
    "llmcourse_labs.real.command",
    "show a model of others, or which there are",
    "smollm2",
    is_result=True,
)
quantise = Command(
    "llmcourse_labs.export.quantised",
    "write a run or a model in few bits, for llama.cpp",
    "--model smollm2 --kind Q8_0 --out few.gguf",
)
serve = Command(
    "llmcourse_labs.tuning.serving",
    "answer many at once, as OpenAI's clients ask",
    "--model smollm2",
)
launch = Command(
    "llmcourse_labs.scale.launch.__main__",
    "write a job for a cluster",
    "slurm --run_folder /shared/runs/a --nodes 2 --out job.sbatch",
)
