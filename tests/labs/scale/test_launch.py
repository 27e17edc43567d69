"""launch: what each machine would run, field by field; nothing breaks out, nothing is half written.

The programs of a cluster are stubs that record their arguments, so that a script or a manifest is
judged by what it starts, and not by how it reads.
"""

import json
import math
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from string import Template

import psutil
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.distributed import run as torchrun

from llmcourse import checkpoint
from llmcourse.base.command_line import GO_ON
from llmcourse.parallel import world
from llmcourse.train import __main__ as train_command_line
from llmcourse_labs.scale.launch import (
    LaunchConfig,
    batch_script,
    manifest,
    manifest_text,
    nodes_of_groups,
    rank_map,
    rank_table,
    torchrun_arguments,
    train_arguments,
)
from llmcourse_labs.scale.launch import __main__ as command_line
from llmcourse_labs.scale.launch.job import torchrun_program

KINDS = ("jobset", "pytorchjob")
WRITERS = ("slurm", *KINDS)
HOSTILE = (
    "plain", "two words", 'a"b', "a'b", "$(touch broken)", "`touch broken`", "$HOME", "$$(HOME)",
    "$(JOB_COMPLETION_INDEX)", "a;touch broken", "a\\", "*", "~", "a && touch broken", ")",
    "#SBATCH --nodes=9", "{a,b}", "!x", "@ENDPOINT@", "é: [1, 2] # no", "- x", "a=b",
)  # fmt: skip

texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1),
)


def config(**changes):
    base = {"name": "stories-a", "nodes": 3, "processes_per_node": 4, "port": 29_417}
    base |= {"max_restarts": 2, "job_restarts": 6, "start_timeout_s": 321, "hours": 30.5}
    base |= {"run_folder": "/shared/runs/a", "train": {"steps": 1000, "learning_rate": 6e-3}}
    return LaunchConfig(**base | changes)


def in_cluster(**changes):
    needed = {"image": "registry.example/llm:1.2", "claim": "runs", "mount": "/shared"}
    return config(**needed | changes)


STUB = """#!/bin/bash
file=$(mktemp "$RECORD/{name}.XXXXXX")
printf '%s\\0' "$@" > "$file"
{then}
"""
SRUN = """
while [[ $1 == --* ]]; do shift; done
"$@" || exit
exit "${SRUN_STATUS:-0}"
"""
TORCHRUN = """
[[ ${TORCH_DISABLE_SHARE_RDZV_TCP_STORE:-} == 1 ]]
"""
SLOW_SRUN = """
trap 'exit 143' TERM
touch "$RECORD/ready"
until [[ -e "$RECORD/run/stop" ]]; do sleep 0.05; done
sleep 0.3
echo saved > "$RECORD/saved"
exit "${SRUN_STATUS:-0}"
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """A folder with scontrol, srun and torchrun that say what they were asked for."""
    folder = tmp_path_factory.mktemp("bin")
    listing = r"if [[ $1 == show ]]; then printf 'alpha\nbeta\ngamma\n'; fi"
    for name, then in {"scontrol": listing, "srun": SRUN, "torchrun": TORCHRUN}.items():
        write_program(folder / name, STUB.format(name=name, then=then))
    return folder


def write_program(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def environment(stubs, record, **variables):
    return {
        "PATH": f"{stubs}:/usr/bin:/bin",
        "HOME": "/nowhere",
        "RECORD": str(record),
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "cluster[1-3]",
        **variables,
    }


def calls(record, name):
    files = sorted(record.glob(f"{name}.*"))
    return [file.read_bytes().decode().split("\0")[:-1] for file in files]


def empty(record):
    record.mkdir(exist_ok=True)
    for old in record.iterdir():
        old.unlink()


def run_script(text, stubs, record, **variables):
    empty(record)
    told = {"input": text, "cwd": record, "env": environment(stubs, record, **variables)}
    how = {"capture_output": True, "text": True, "timeout": 20}
    return subprocess.run(["bash", "-s"], check=False, **told, **how)


def expected_words(job):
    return torchrun_arguments(job, endpoint=f"alpha:{job.port}", run_id="4711")


def starts_what_it_should(script, job, stubs, record):
    """Whether a script passes `bash -n` and starts exactly the command of its job."""
    if subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode:
        return False
    done = run_script(script, stubs, record)
    asked = [["show", "hostnames", "cluster[1-3]"]]
    return (
        done.returncode == 0
        and calls(record, "torchrun") == [expected_words(job)]
        and calls(record, "scontrol") == asked
        and len(calls(record, "srun")) == 1
        and not (record / "broken").exists()
    )


def test_torchrun_itself_reads_the_arguments():
    words = torchrun_arguments(config(), endpoint="head:29417", run_id="x")
    words[1] += ",is_host=true"  # as the writer for kubernetes adds it
    read = torchrun.get_args_parser().parse_args(words)
    launch, program, arguments = torchrun.config_from_args(read)
    assert (launch.min_nodes, launch.max_nodes, launch.nproc_per_node) == (3, 3, 4)
    assert (launch.rdzv_backend, launch.rdzv_endpoint) == ("c10d", "head:29417")
    assert (launch.run_id, launch.max_restarts) == ("x", 2)
    waits = {"join_timeout": "321", "read_timeout": "321", "is_host": "true"}
    assert waits.items() <= launch.rdzv_configs.items()
    assert arguments == ["-u", "-m", "llmcourse.train", *train_arguments(config())]
    assert Path(program).name.startswith("python")


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("preset", ["tiny", "stories", "sotu"])
def test_the_parser_of_training_reads_the_rest(preset, parallel):
    flags = {"steps": 1234, "learning_rate": 6e-3, "model.width": 96, "schedule": "wsd"}
    flags |= {"save_in_background": True, "data": "a b"}
    words = train_arguments(config(preset=preset, parallel=parallel, device="cpu", train=flags))
    assert train_command_line._preset_of(words) == preset
    read = train_command_line._parser(preset).parse_args(words)
    assert (read.engine, read.parallel, read.device) == ("torch", parallel, "cpu")
    assert (read.steps, read.learning_rate, read.model.width) == (1234, 6e-3, 96)
    assert (read.out, read.schedule, read.data) == ("/shared/runs/a", "wsd", "a b")
    assert read.save_in_background is True
    assert "--save_in_background=true" in words


def test_the_script_asks_for_what_the_job_needs():
    job = config(cpus_per_node=64, memory_gb_per_node=500, partition="gpu,long")
    asked = sbatch_options(batch_script(job))
    assert asked == {
        "job-name": "stories-a",
        "nodes": "3",
        "ntasks-per-node": "1",
        "gpus-per-node": "4",
        "cpus-per-task": "64",
        "mem": "500G",
        "time": "1-06:30:00",
        "signal": "B:USR1@300",
        "requeue": "",
        "open-mode": "append",
        "output": "%x-%j.log",
        "partition": "gpu,long",
    }
    without = sbatch_options(batch_script(config(device="cpu", job_restarts=0)))
    assert {"gpus-per-node", "requeue", "no-requeue"} & without.keys() == {"no-requeue"}


def sbatch_options(script):
    """The options that Slurm reads: those above the first line that is no comment."""
    head = script.split("\n\n")[0].split("\n")
    assert head[0] == "#!/bin/bash"
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in head[1:])
    pairs = [line.removeprefix("#SBATCH --").partition("=") for line in head[1:]]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("job", [config(), config(cpus_per_node=8, image="/a.sqsh", mount="/s")])
def test_srun_starts_one_task_on_each_machine(job, stubs, tmp_path):
    job = LaunchConfig(**vars(job) | {"run_folder": "/s/run"})
    assert starts_what_it_should(batch_script(job), job, stubs, tmp_path / "r")
    (words,) = calls(tmp_path / "r", "srun")
    options = words[: words.index("torchrun")]
    assert options[:4] == ["--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    image = ["--container-image=/a.sqsh", "--container-mounts=/s:/s"]
    assert options[4:] == (["--cpus-per-task=8", *image] if job.image else [])


@pytest.mark.parametrize("text", HOSTILE)
def test_no_hostile_text_breaks_out_of_the_script(stubs, tmp_path, text):
    venv = tmp_path / text
    (venv / "bin").mkdir(parents=True)
    write_program(venv / "bin" / "torchrun", STUB.format(name="own", then=""))
    job = config(run_folder=f"/shared/{text}", train={"note": text, "a.b": text}, venv=f"{venv}/")
    assert run_script(batch_script(job), stubs, tmp_path / "r").returncode == 0
    assert calls(tmp_path / "r", "own") == [expected_words(job)]
    assert calls(tmp_path / "r", "torchrun") == []
    assert not (tmp_path / "r" / "broken").exists()


SCRIPT_MUTANTS = {
    "an unquoted folder": ("'/shared/my runs; touch broken'", "/shared/my runs; touch broken"),
    "a folder in double quotes": ("'$(touch broken)'", '"$(touch broken)"'),
    "the endpoint not filled in": ('"$head:29417"', "'$head:29417'"),
    "no port": ('"$head:29417"', '"$head"'),
    "all hosts in place of the first": ("head=${hosts%%$'\\n'*}", "head=$hosts"),
    "the last host": ("head=${hosts%%$'\\n'*}", "head=${hosts##*$'\\n'}"),
    "an array split at spaces": ('"${command[@]}"', "${command[@]}"),
    "a job without an id": ('"$SLURM_JOB_ID"\n  --max_restarts', "llmcourse\n  --max_restarts"),
    "a quote left open": ("'/shared/my runs; touch broken'", "'/shared/my runs; touch broken"),
    "a failure that is not noticed": ("exit 1\nfi\n", "exit 1\nfi\nfalse\n"),
    "a misspelt list of nodes": ("$SLURM_JOB_NODELIST", "$SLURM_JOB_NODE_LIST"),
    "an environment that is not passed on": ("export TORCH_DIS", "TORCH_DIS"),
    "srun left out": ('srun "${srun_options[@]}" ', ""),
}


@pytest.mark.parametrize("name", SCRIPT_MUTANTS)
def test_wrong_scripts_are_noticed(stubs, tmp_path, name):
    job = config(run_folder="/shared/my runs; touch broken", train={"note": "$(touch broken)"})
    script = batch_script(job)
    assert starts_what_it_should(script, job, stubs, tmp_path / "r")
    script = script.replace("--note='$(", "--note= '$(") if "double" in name else script
    right, wrong = SCRIPT_MUTANTS[name]
    assert right in script
    assert not starts_what_it_should(script.replace(right, wrong), job, stubs, tmp_path / "r")


@pytest.mark.parametrize(
    ("restarts", "of_command", "status", "started"),
    [("0", "0", 0, 1), ("6", "0", 0, 1), ("7", "0", 1, 0), ("0", "37", 37, 1)],
)
def test_the_job_ends_as_its_command_does_and_after_its_restarts(
    stubs, tmp_path, *, restarts, of_command, status, started
):
    variables = {"SLURM_RESTART_COUNT": restarts, "SRUN_STATUS": of_command}
    done = run_script(batch_script(config()), stubs, tmp_path / "r", **variables)
    assert done.returncode == status
    assert len(calls(tmp_path / "r", "torchrun")) == started
    assert ("gave up after 6 restarts" in done.stderr) == (not started)
    assert ["requeue", "4711"] not in calls(tmp_path / "r", "scontrol")


@pytest.mark.parametrize(("restarts", "again"), [("0", True), ("5", True), ("6", False)])
@pytest.mark.parametrize("status", ["0", "1"])
def test_near_the_time_limit_ranks_save_and_a_job_queues(stubs, tmp_path, restarts, again, status):
    for name in ("scontrol", "torchrun"):
        (tmp_path / name).symlink_to(stubs / name)
    write_program(tmp_path / "srun", STUB.format(name="srun", then=SLOW_SRUN))
    job = tmp_path / "job.sbatch"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stop").touch()  # what stopped the job before
    job.write_text(batch_script(config(run_folder=f"{tmp_path}/run/")))
    variables = environment(tmp_path, tmp_path, SLURM_RESTART_COUNT=restarts, SRUN_STATUS=status)
    process = subprocess.Popen(["bash", str(job)], env=variables)
    wait_for(tmp_path / "ready")
    time.sleep(0.3)
    assert not (tmp_path / "saved").exists()
    for _ in range(2):  # a second signal does not end the wait, either
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
    assert process.wait(timeout=20) == GO_ON
    assert (tmp_path / "saved").exists()
    assert (["requeue", "4711"] in calls(tmp_path, "scontrol")) == again


def wait_for(path, *, seconds=20):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


# Starts the command once for each machine, all on this one.
MACHINES = """#!/bin/bash
while [[ $1 == --* ]]; do [[ $1 == --ntasks=* ]] && n=${1#*=}; shift; done
for ((i = 0; i < n; i++)); do "$@" & started+=($!); done
for process in "${started[@]}"; do wait "$process" || exit; done
"""
SCONTROL = """#!/bin/bash
if [[ $1 == show ]]; then echo localhost; echo other; else echo "$@" >> "$RECORD/asked"; fi
"""


@pytest.fixture
def machines(tmp_path):
    """Stand-ins that start real torchruns, all on this machine; the environment for a script."""
    write_program(tmp_path / "scontrol", SCONTROL)
    write_program(tmp_path / "srun", MACHINES)
    program = f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"\n'
    write_program(tmp_path / "torchrun", program)
    variables = os.environ | environment(tmp_path, tmp_path) | {"OMP_NUM_THREADS": "1"}
    return variables | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def small_job(make=config, **changes):
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    own = {"processes_per_node": 1, "device": "cpu", "preset": "tiny", "port": max(port, 1024)}
    return make(**own | changes)


@contextmanager
def running(words, **settings):
    process = subprocess.Popen(words, **settings)
    try:
        yield process
    finally:
        if process.poll() is None:
            for started in [*psutil.Process(process.pid).children(recursive=True), process]:
                started.kill()
            process.wait()


@pytest.mark.soak  # that two machines meet is seen below; a killed rank, in test_torch_engine
def test_two_machines_meet_train_and_go_on_after_a_killed_rank(machines, tmp_path):
    folder, said = tmp_path / "it's a $(run)", tmp_path / "log"
    job = small_job(run_folder=str(folder), nodes=2, train={"checkpoint_every": 5})
    (tmp_path / "job.sbatch").write_text(batch_script(job))
    words = ["bash", str(tmp_path / "job.sbatch")]
    with said.open("w") as log, running(words, env=machines, stdout=log, stderr=log) as process:
        wait_for(folder / "checkpoints" / "step_00000005.dcp", seconds=60)
        below = psutil.Process(process.pid).children(recursive=True)
        {found.environ().get("RANK"): found for found in below}["1"].kill()
        assert process.wait(timeout=90) == 0, said.read_text()
    assert "failed (exitcode: -9)" in said.read_text()
    assert said.read_text().count("on 2 ranks of torch's") == 2
    assert "done: validation" in said.read_text()
    assert (folder / "checkpoints" / "step_00000030.dcp").exists()


LONG = {"steps": 100_000, "validate_every": 0, "checkpoint_every": 0}


def steps_saved_and_told(folder):
    saved = checkpoint.load(checkpoint.latest(folder / "checkpoints")).step
    return saved, (folder / "metrics.jsonl").read_text().count("\n")


def test_two_machines_save_near_the_time_limit_and_queue_again(machines, tmp_path):
    folder = tmp_path / "it's a $(run)"
    job = small_job(run_folder=str(folder), nodes=2, train=LONG)
    (tmp_path / "job.sbatch").write_text(batch_script(job))
    with running(["bash", str(tmp_path / "job.sbatch")], env=machines) as process:
        wait_for(folder / "metrics.jsonl", seconds=90)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(timeout=90) == GO_ON
    saved, told = steps_saved_and_told(folder)
    assert saved == told
    assert (tmp_path / "asked").read_text() == "requeue 4711\n"
    assert not (folder / "stop").exists()


@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.soak)])
def test_a_pod_that_has_to_go_saves_and_ends_with_a_status_of_its_own(kind, machines, tmp_path):
    """As the kubelet tells it: SIGTERM to the first process alone.  Both start one command."""
    folder = tmp_path / "it's a $(run)"
    own = {"run_folder": str(folder), "mount": str(tmp_path), "processes_per_node": 2}
    job = small_job(in_cluster, nodes=1, train=LONG, **own)
    ((host, own, container),) = pods(manifest(job, kind))
    own |= {entry["name"]: entry["value"] for entry in container["env"]}
    command = [filled_in(word, own).replace(host, "127.0.0.1") for word in container["command"]]
    with running(command, env=machines | own) as process:
        wait_for(folder / "metrics.jsonl", seconds=90)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=90) == GO_ON
    saved, told = steps_saved_and_told(folder)
    assert saved == told


# Every field that we write, since a cluster may drop a misspelt one in silence, as they stand in
# https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ and .../job-v1/,
# https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/ and, for the operator,
# https://github.com/kubeflow/trainer/blob/release-1.9/pkg/apis/kubeflow.org/v1/ (*_types.go).
POD = """
terminationGracePeriodSeconds: 300
containers:
- name: pytorch
  image: $image
  env: [{name: TORCH_DISABLE_SHARE_RDZV_TCP_STORE, value: "1"}]
  ports: [{name: $port_name, containerPort: $port}]
  volumeMounts: [{name: shared, mountPath: $mount}, {name: shm, mountPath: /dev/shm}]
  resources: {requests: $amounts, limits: $amounts}
volumes:
- {name: shared, persistentVolumeClaim: {claimName: $claim}}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
"""
JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: $name}
spec:
  network: {enableDNSHostnames: true, subdomain: $name}
  failurePolicy:
    maxRestarts: $job_restarts
    rules:
    - {name: timeLimit, action: FailJobSet, onJobFailureReasons: [DeadlineExceeded]}
    - name: goOn
      action: RestartJobSetAndIgnoreMaxRestarts
      onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
  - name: node
    replicas: 1
    template:
      spec:
        parallelism: $nodes
        completions: $nodes
        completionMode: Indexed
        backoffLimit: 0
        activeDeadlineSeconds: $seconds
        podFailurePolicy:
          rules:
          - action: FailJob
            onExitCodes: {containerName: pytorch, operator: In, values: [$go_on]}
        template: {spec: {restartPolicy: Never}}
"""
PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: $name}
spec:
  nprocPerNode: "$processes_per_node"
  elasticPolicy:
    rdzvBackend: c10d
    rdzvPort: $port
    rdzvId: $name
    minReplicas: $nodes
    maxReplicas: $nodes
    maxRestarts: $max_restarts
  runPolicy: {activeDeadlineSeconds: $seconds, backoffLimit: $job_restarts, cleanPodPolicy: Running}
  pytorchReplicaSpecs:
    Worker: {replicas: $nodes, restartPolicy: $policy, template: {spec: {}}}
"""


def expected(job, kind):
    gpus = job.processes_per_node if job.device == "cuda" else None
    memory = job.memory_gb_per_node and f"{job.memory_gb_per_node}Gi"
    amounts = {"nvidia.com/gpu": gpus, "cpu": job.cpus_per_node, "memory": memory}
    amounts = {name: str(amount) for name, amount in amounts.items() if amount}
    filled = vars(job) | {
        "seconds": round(3600 * job.hours),
        "go_on": GO_ON,
        "policy": "OnFailure" if job.job_restarts else "Never",
        "port_name": "rendezvous" if kind == "jobset" else "pytorchjob-port",
        "amounts": json.dumps(amounts),
    }
    text = JOBSET if kind == "jobset" else PYTORCHJOB
    made, pod = (yaml.safe_load(Template(each).substitute(filled)) for each in (text, POD))
    if not amounts:
        del pod["containers"][0]["resources"]
    pod_template(made).update(pod)
    if kind == "jobset" and not job.job_restarts:  # never started anew
        del made["spec"]["failurePolicy"]["rules"][1]
        del made["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]
    return made


def pod_template(made):
    if made["kind"] == "JobSet":
        (job,) = made["spec"]["replicatedJobs"]
        return job["template"]["spec"]["template"]["spec"]
    return made["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]


def pods(made):
    """Name in the network, environment, and container of every pod that a cluster would make."""
    name, spec = made["metadata"]["name"], made["spec"]
    (container,) = pod_template(made)["containers"]
    if made["kind"] == "JobSet":
        (job,) = spec["replicatedJobs"]
        for index in range(job["template"]["spec"]["completions"]):
            host = f"{name}-{job['name']}-0-{index}.{spec['network']['subdomain']}"
            yield host, {"JOB_COMPLETION_INDEX": str(index)}, container
    else:
        for index in range(spec["pytorchReplicaSpecs"]["Worker"]["replicas"]):
            yield f"{name}-worker-{index}", {}, container


def filled_in(word, variables):
    """What Kubernetes makes of a word of a command: $(NAME) is filled in, $$ is a dollar."""
    pattern = re.compile(r"\$\$|\$\(([^)]*)\)")
    return pattern.sub(lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]), word)


def runs_what_it_should(made, job, stubs, record):
    """Whether every pod starts the command of the job, and all meet at the first pod."""
    empty(record)
    hosts = [host for host, _, _ in pods(made)]
    for index, (_, own, container) in enumerate(pods(made)):
        own |= {entry["name"]: entry["value"] for entry in container["env"]}
        variables = environment(stubs, record, **own)
        command = [filled_in(word, variables) for word in container["command"]]
        done = subprocess.run(command, env=variables, cwd=record, check=False, timeout=20)
        if done.returncode:
            return False
        ((*words,),) = calls(record, "torchrun")
        host = f",is_host={str(index == 0).lower()}" if made["kind"] == "JobSet" else ""
        wanted = torchrun_arguments(job, endpoint=f"{hosts[0]}:{job.port}", run_id=job.name)
        wanted[1] += host
        if as_pairs(words) != as_pairs(wanted) or (record / "broken").exists():
            return False
        next(record.glob("torchrun.*")).unlink()
    return len(hosts) == job.nodes


def as_pairs(words):
    """torchrun's flags in any order, then the module and its arguments in theirs."""
    at = words.index("-m")
    return sorted(zip(words[:at:2], words[1:at:2], strict=True)), words[at:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [1, 3])
def test_every_pod_starts_the_command_and_knows_the_first(stubs, tmp_path, kind, nodes):
    job = in_cluster(nodes=nodes)
    assert runs_what_it_should(manifest(job, kind), job, stubs, tmp_path / "r")


@pytest.mark.parametrize("writer", WRITERS)
@given(folder=texts.filter(lambda text: ".." not in text.split("/")), value=texts)
@example(folder="'", value='"')
@settings(max_examples=14)
def test_no_value_breaks_out(stubs, tmp_path, writer, folder, value):
    given_to_it = {"run_folder": f"/shared/{folder}", "train": {"note": value}}
    if writer == "slurm":
        job = config(nodes=10**4, **given_to_it)
        assert starts_what_it_should(batch_script(job), job, stubs, tmp_path / "r")
        return
    job = in_cluster(nodes=2, **given_to_it)
    made = yaml.safe_load(manifest_text(job, writer))
    assert made == manifest(job, writer)
    assert runs_what_it_should(made, job, stubs, tmp_path / "r")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_hostile_text_breaks_out_of_a_manifest(stubs, tmp_path, kind, text):
    job = in_cluster(nodes=1, run_folder=f"/shared/{text}", train={"note": text})
    assert runs_what_it_should(yaml.safe_load(manifest_text(job, kind)), job, stubs, tmp_path / "r")


@pytest.mark.parametrize("kind", KINDS)
@given(
    nodes=st.integers(1, 5000),
    processes_per_node=st.integers(1, 16),
    device=st.sampled_from(["cuda", "cpu"]),
    job_restarts=st.sampled_from([0, 1, 100]),
    hours=st.floats(0.1, 1000),
    cpus_per_node=st.none() | st.integers(1, 256),
    memory_gb_per_node=st.none() | st.integers(1, 4096),
)
def test_a_manifest_has_every_field_and_no_other(kind, **changes):
    job = in_cluster(**changes)
    made = yaml.safe_load(manifest_text(job, kind))
    del pod_template(made)["containers"][0]["command"]
    texts = [json.dumps(each, sort_keys=True) for each in (made, expected(job, kind))]
    assert texts[0] == texts[1]  # as text, in which 1 is neither 1.0 nor true


def test_a_jobset_starts_anew_as_a_whole_and_within_limits():
    spec = manifest(in_cluster())["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    assert (job["parallelism"], job["completions"]) == (3, 3)
    assert (job["completionMode"], job["backoffLimit"]) == ("Indexed", 0)
    assert (job["activeDeadlineSeconds"], spec["failurePolicy"]["maxRestarts"]) == (109_800, 6)
    assert spec["failurePolicy"]["rules"][0]["onJobFailureReasons"] == ["DeadlineExceeded"]


WRONG_MEETINGS = {
    "another subdomain": ("jobset", ("spec", "network", "subdomain"), "stories"),
    "another name of the job": ("jobset", ("spec", "replicatedJobs", 0, "name"), "worker"),
    "another name of the set": ("jobset", ("metadata", "name"), "stories-b"),
    "too few pods": ("jobset", ("spec", "replicatedJobs", 0, "template", "spec", "completions"), 2),
    "another name of the operator's job": ("pytorchjob", ("metadata", "name"), "stories-b"),
    "too many workers": ("pytorchjob", ("spec", "pytorchReplicaSpecs", "Worker", "replicas"), 4),
}


@pytest.mark.parametrize("name", WRONG_MEETINGS)
def test_pods_that_would_not_meet_are_noticed(stubs, tmp_path, name):
    kind, (*path, last), value = WRONG_MEETINGS[name]
    job = in_cluster()
    made = node = manifest(job, kind)
    for step in path:
        node = node[step]
    assert node[last] != value
    node[last] = value
    assert not runs_what_it_should(made, job, stubs, tmp_path / "r")


def test_dollars_that_are_not_protected_are_noticed(stubs, tmp_path):
    job = in_cluster(run_folder="/shared/$(HOME)")
    made = json.loads(json.dumps(manifest(job)).replace("$$(HOME)", "$(HOME)"))
    assert runs_what_it_should(manifest(job), job, stubs, tmp_path / "r")
    assert not runs_what_it_should(made, job, stubs, tmp_path / "r")


PATH, FLAGS = "run_folder must be a path from /", "train takes names of flags without dashes"
REFUSED = [  # field, message, values
    ("name", "name must be a lower-case letter", "Stories", "a" * 41, "a-", ""),
    ("name", "name must be printable text on one line", "a\n"),
    ("run_folder", f"{PATH} without ..", "runs/a", "/", "/a/../b"),
    ("run_folder", "must be printable text on one line", "/a\nb", "/a\x00b", "/a\u2028b"),
    ("venv", "venv must be a path from /", "env"),
    ("nodes", "nodes must be 1 or greater, got 0", 0),
    ("nodes", "nodes must be at most 1000000", 10**31),
    ("job_restarts", "job_restarts must be at most 1000000", 10**31),
    ("processes_per_node", "processes_per_node must be 1 or greater", 0),
    ("max_restarts", "max_restarts must be 0 or greater", -1),
    ("job_restarts", "job_restarts must be 0 or greater", -1),
    ("start_timeout_s", "start_timeout_s must be 1 or greater", 0),
    ("cpus_per_node", "cpus_per_node must be 1", 0),
    ("port", "port must be 1024 or greater, got 80", 80),
    ("port", "port must be at most 65535, got 65536", 65_536),
    ("hours", "hours must be from 0.1", 0.0, float("nan"), float("inf")),
    ("preset", "preset must be lower-case letters", "a b", "-x"),
    ("partition", "partition must be letters", "a b", "-x"),
    ("partition", "must be printable text on one line", "a\n#SBATCH --nodes=9"),
    ("image", "image must be", "a b", "-x"),
    ("mount", "mount must be a path from /", "shared", "/a:b"),
    ("mount", "mount must be a folder below /", "/"),
    ("claim", "claim must be lower-case", "a_b"),
    ("train", FLAGS, {"--steps": 1}, {"steps; x": 1}),
    ("train", "train.out is set by the job", {"out": "/x"}),
    ("train", "train.ranks is set by the job", {"ranks": 4}),
    ("train", "train.engine is set by the job", {"engine": "own"}),
    ("train", "batch_size = 8 sequences cannot be shared equally by 3", {"batch_size": 8}),
    ("train", "must be printable text on one line", {"note": "a\nb"}),
    ("train", "train.note must be a number, a word or true or false, got None", {"note": None}),
    ("device", "device must be cuda or cpu; got 'mps'", "mps"),
    ("parallel", "parallel must be ddp or fsdp; got 'zero3'", "zero3"),
]


@pytest.mark.parametrize(("field", "message", "values"), [(f, m, v) for f, m, *v in REFUSED])
def test_settings_that_no_job_can_have_are_refused(field, message, values):
    for value in values:
        job = config()
        object.__setattr__(job, field, value)  # past the check of types, which users do not run
        with pytest.raises(ValueError, match=re.escape(message)) as refusal:
            job.__post_init__()
        assert field in str(refusal.value)
        assert "\n" not in str(refusal.value)


def on_slurm(**changes):
    return batch_script(config(**changes))


def on_kubernetes(**changes):
    return manifest(in_cluster(**changes))


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: on_slurm(claim="a"), "claim has no effect on slurm"),
        (lambda: on_slurm(image="a"), "image and mount go together on slurm"),
        (lambda: on_slurm(mount="/a"), "image and mount go together on slurm"),
        (lambda: on_slurm(image="a", mount="/other"), "must lie below mount = /other"),
        (lambda: on_kubernetes(partition="a"), "partition has no effect on kubernetes"),
        (lambda: on_kubernetes(image=None), "image is missing"),
        (lambda: on_kubernetes(claim=None), "claim is missing"),
        (lambda: on_kubernetes(mount=None), "mount is missing"),
        (lambda: on_kubernetes(mount="/share"), "run_folder must lie below mount = /share"),
        (lambda: on_kubernetes(image="/a.sqsh"), "image must be a name that kubernetes can pull"),
        (lambda: rank_map({"dp": 64, "tp": 16}, 8), "tp = 16 crosses nodes of 8 ranks"),
        (lambda: rank_map({"tp": 2, "dp": 4}, 4), "tp = 2 crosses nodes of 4 ranks, a group lies"),
        (lambda: rank_map({"dp": 4, "tp": 6}, 8), "make tp the last axis, with a size that"),
        (lambda: rank_map({"dp": 3, "tp": 4}, 8), "dp 3 x tp 4 = 12 ranks do not fill nodes of 8"),
        (lambda: rank_map({"dp": 0, "tp": 4}, 8), "dp must be 1 or greater, got 0"),
        (lambda: rank_map({"tp": 4}, 0), "ranks_per_node must be 1 or greater, got 0"),
    ],
)
def test_what_a_scheduler_cannot_use_is_refused(write, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        write()


LLAMA = {"dp": 128, "pp": 16, "cp": 1, "tp": 8}


@pytest.mark.parametrize(
    ("mesh", "size"), [(LLAMA, 8), ({"dp": 3, "pp": 2, "tp": 4}, 8), ({"dp": 8}, 4)]
)
def test_the_rank_map_holds_every_rank_once_in_the_order_of_the_mesh(mesh, size):
    places = [dict(zip(mesh, at, strict=True)) for at in product(*map(range, mesh.values()))]
    nodes = rank_map(mesh, size)
    assert [place for node in nodes for place in node] == places
    assert {len(node) for node in nodes} == {size}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_on_how_many_nodes_a_group_lies(sizes, data):
    mesh = dict(zip(("dp", "pp", "cp", "ep"), sizes, strict=False))
    total = math.prod(sizes)
    of_node = data.draw(st.sampled_from([n for n in range(1, total + 1) if total % n == 0]))
    places = [world.place_of(rank, mesh) for rank in range(total)]
    found = nodes_of_groups(mesh, of_node)
    for axis in mesh:
        spread = {}
        for rank, place in enumerate(places):
            key = tuple((name, at) for name, at in place.items() if name != axis)
            spread.setdefault(key, set()).add(rank // of_node)
        assert found[axis] == max(map(len, spread.values()))


def test_the_map_in_print():
    lines = rank_table(LLAMA, 8).splitlines()
    assert lines[0] == "node 0    ranks 0-7: dp 0, pp 0, cp 0, tp 0-7"
    assert lines[4:] == ["...", "node 2047 ranks 16376-16383: dp 127, pp 15, cp 0, tp 0-7"]
    assert len(rank_table({"dp": 2, "tp": 4}, 4).splitlines()) == 2


SETTINGS = """\
name: stories-a
run_folder: /shared/runs/a
nodes: 3
train:
  steps: 1000
  model.width: 128
  learning_rate: 6e-3
"""


OF_FILE = {"name": "stories-a", "run_folder": "/shared/runs/a", "nodes": 3}
OF_FILE |= {"train": {"steps": 1000, "model.width": 128, "learning_rate": 6e-3}}


@pytest.fixture
def settings_file(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(SETTINGS)
    return path


def test_the_command_line_writes_what_the_functions_return(settings_file, tmp_path, capsys):
    job = LaunchConfig(**OF_FILE | {"nodes": 5})
    out = tmp_path / "new" / "job.sbatch"
    common = ["--config", str(settings_file), "--nodes", "5"]
    assert command_line.main(["slurm", *common, "--out", str(out)]) == 0
    assert out.read_text() == batch_script(job)
    assert capsys.readouterr().out == f"wrote {out}; start it with: sbatch {out}\n"
    assert [path.name for path in out.parent.iterdir()] == ["job.sbatch"]
    assert command_line.main(["slurm", *common]) == 0
    assert capsys.readouterr().out == batch_script(job)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_writes_manifests(settings_file, kind, capsys):
    more = {"image": "a/b:1", "claim": "runs", "mount": "/shared"}
    flags = [word for name, value in more.items() for word in (f"--{name}", value)]
    words = ["kubernetes", "--config", str(settings_file), *flags, "--kind", kind]
    assert command_line.main(words) == 0
    assert capsys.readouterr().out == manifest_text(LaunchConfig(**OF_FILE, **more), kind)


def refused(words, capsys):
    """The one line that the command line gives for a mistake."""
    assert command_line.main([str(word) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("llmcourse launch: ")
    return line


def test_a_file_is_replaced_when_asked_for_as_a_whole(settings_file, tmp_path, capsys, monkeypatch):
    out = tmp_path / "job.sbatch"
    out.write_text("mine")
    words = ["slurm", "--config", settings_file, "--out", out]
    assert "exists: choose another name, or give --force" in refused(words, capsys)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        line = refused([*words, "--force"], capsys)
    assert "No space left on device" in line
    assert str(out) in line
    assert out.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.sbatch", "job.yaml"]
    assert command_line.main([str(word) for word in [*words, "--force"]]) == 0
    assert out.read_text().startswith("#!/bin/bash")


ON_SLURM = ("slurm", "--run_folder", "/a/b")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "scheduler"),
        (["pbs", "--run_folder", "/a/b"], "pbs"),
        (["slurm"], "run_folder"),
        ([*ON_SLURM, "--nodes", "x"], "nodes"),
        ([*ON_SLURM, "--wrong", "2"], "wrong"),
        ([*ON_SLURM, "--kind", "jobset"], "--kind has no effect on slurm"),
        ([*ON_SLURM, "--force"], "--force has no effect without --out"),
        ([*ON_SLURM, "--name", "A"], "name must be"),
        (["slurm", "--config", "/nowhere/job.yaml"], "job.yaml"),
        (["kubernetes", "--run_folder", "/a/b"], "image is missing"),
        (["kubernetes", "--run_folder", "/a/b", "--kind", "job"], "kind"),
        ("run_folder: /a/b\nnode: 3\n", "node"),  # text is that of the file
        ("run_folder: /a/b\nnodes: many\n", "nodes"),
        ("run_folder: /a/b\ntrain: [steps]\n", "train"),
        ("run_folder: /a/b\ntrain: {steps: [1]}\n", "train"),
        ("run_folder: [\n", "Problems parsing config"),
        ("- a\n", "Unexpected config"),
        ("run_folder: !!python/object/apply:os.getcwd []\n", "Problems parsing config"),
    ],
)
def test_a_mistake_is_one_line(words, message, settings_file, capsys):
    if isinstance(words, str):
        settings_file.write_text(words)
        words = ["slurm", "--config", settings_file]
    assert message in refused(words, capsys)


def test_it_runs_as_a_program(settings_file):
    words = ["-m", "llmcourse_labs.scale.launch", "slurm", "--config", str(settings_file)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=stories-a\n")
    assert torchrun_program(config()) == "torchrun"


PAGE = (Path(__file__).parents[3] / "book" / "machines.md").read_text(encoding="utf8")


def blocks_of_the_page(language):
    """The fenced blocks of a language, in order; the text of each."""
    fences = PAGE.split("```")[1::2]
    return [text.partition("\n")[2] for text in fences if text.partition("\n")[0] == language]


def commands_of_the_page():
    """Every command of the page, one line each."""
    return "".join(blocks_of_the_page("")).replace("\\\n", " ").splitlines()


def test_the_commands_of_the_page_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (sample,) = blocks_of_the_page("yaml")
    Path("job.yaml").write_text(sample)
    prefix = "llmcourse launch "
    written = [line.removeprefix(prefix) for line in commands_of_the_page() if prefix in line]
    assert len(written) == 2
    for line in written:
        assert command_line.main(shlex.split(line)) == 0
    assert sbatch_options(Path("job.sbatch").read_text())["job-name"] == "speeches-2x8"
    assert next(pods(yaml.safe_load(Path("jobset.yaml").read_text())))[0] in PAGE
    assert "#SBATCH --signal=B:USR1@300" in PAGE
    assert "#SBATCH --signal=B:USR1@300" in Path("job.sbatch").read_text()
    starts = [line.split()[-1] for line in commands_of_the_page() if line.startswith(("sb", "ku"))]
    assert starts == ["job.sbatch", "jobset.yaml"]


def test_torchrun_and_training_read_the_commands_of_the_page():
    commands = commands_of_the_page()
    words = [shlex.split(line)[1:] for line in commands if line.startswith("torchrun")]
    assert len(words) == 2
    for line in words:
        read = torchrun.get_args_parser().parse_args(line)
        assert (read.module, read.training_script) == (True, "llmcourse.train")
        preset = train_command_line._preset_of(read.training_script_args)
        options = train_command_line._parser(preset).parse_args(read.training_script_args)
        assert options.engine == "torch"
