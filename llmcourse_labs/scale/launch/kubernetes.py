"""Manifests for Kubernetes: a JobSet, or a PyTorchJob of the Kubeflow training operator.

A manifest is built as plain data and written by PyYAML; no text is ever pasted into YAML.
"""

import re
from typing import Any, Literal

import yaml

from llmcourse.base.command_line import GO_ON
from llmcourse_labs.scale.launch.job import (
    ENVIRONMENT,
    LaunchConfig,
    torchrun_arguments,
    torchrun_program,
)

Kind = Literal["jobset", "pytorchjob"]
Manifest = dict[str, Any]

_SHARED_MEMORY = "16Gi"
"""NCCL needs it within a machine; 64 MB is what a container has otherwise."""
_CONTAINER = "pytorch"
"""The training operator looks for this name."""
_JOB = "node"
"""Name of the one job in the JobSet; its pods are NAME-node-0-0, NAME-node-0-1, ..."""

_GRACE_S = 300
"""Seconds from Kubernetes' warning to its kill: a step and a checkpoint have to fit in."""

# A pod that is to go is told by SIGTERM.  torchrun would pass it on, give its processes 30 seconds
# and end with 1.  Here its processes are told themselves, without a limit, and all other ranks by
# the file; the pod ends with a status of its own, which the policies below know.
_WARNED = f"""\
asked=0
ask() {{
  asked={GO_ON}
  mkdir -p -- "${{0%/*}}" && touch -- "$0" || true
  kill -USR1 $(<"/proc/$agent/task/$agent/children") || true
}}
trap ask TERM
"$@" &
agent=$!
wait "$agent"
status=$?
while kill -0 "$agent" 2>/dev/null; do
  wait "$agent"
  status=$?
done
(( asked )) && exit "$asked"
exit "$status"
"""

# The first pod is told that it hosts the rendezvous.  Left to itself, torchrun looks its own name
# up, and the name may not be known yet when the first pod starts.
_HOST_IS_POD_0 = """\
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then host=true; else host=false; fi
set -- "$1" --rdzv_conf "$2,is_host=$host" "${@:3}"
"""


def manifest_text(config: LaunchConfig, kind: Kind = "jobset") -> str:
    """Return a manifest for `kubectl apply -f`, as YAML."""
    return yaml.safe_dump(manifest(config, kind), sort_keys=False, allow_unicode=True, width=100)


def manifest(config: LaunchConfig, kind: Kind = "jobset") -> Manifest:
    """Return a manifest as plain data.

    Args:
        config: the job.
        kind: "jobset" for the JobSet controller, "pytorchjob" for the Kubeflow training operator.

    Raises:
        ValueError: if a setting is missing, or has no effect on kubernetes.

    Source:
        https://jobset.sigs.k8s.io/docs/reference/ and
        https://github.com/kubeflow/trainer/tree/release-1.9
    """
    config.check_for("kubernetes")
    return {"jobset": _jobset, "pytorchjob": _pytorchjob}[kind](config)


def _jobset(config: LaunchConfig) -> Manifest:
    """Return a JobSet: one indexed Job with a pod on each machine, started anew as a whole."""
    pod = _pod(config, _jobset_command(config), port_name="rendezvous")
    job: Manifest = {
        "parallelism": config.nodes,
        "completions": config.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "activeDeadlineSeconds": config.seconds,
        "template": {"spec": {"restartPolicy": "Never", **pod}},
    }
    at_the_limit = {
        "name": "timeLimit",
        "action": "FailJobSet",
        "onJobFailureReasons": ["DeadlineExceeded"],
    }
    rules = [at_the_limit]
    if config.job_restarts:
        # A pod that had to go costs none of the restarts.
        went = {"containerName": _CONTAINER, "operator": "In", "values": [GO_ON]}
        job["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": went}]}
        go_on = {
            "name": "goOn",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        rules.append(go_on)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": config.name},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": config.name},
            "failurePolicy": {"maxRestarts": config.job_restarts, "rules": rules},
            "replicatedJobs": [{"name": _JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _jobset_command(config: LaunchConfig) -> list[str]:
    """Return what each pod of the JobSet runs."""
    endpoint = f"{config.name}-{_JOB}-0-0.{config.name}:{config.port}"
    _, waits, *words = torchrun_arguments(config, endpoint=endpoint, run_id=config.name)
    shell = ["bash", "-c", _HOST_IS_POD_0 + _WARNED, config.stop_file]
    return [*shell, torchrun_program(config), waits, *words]


def _pytorchjob(config: LaunchConfig) -> Manifest:
    """Return a PyTorchJob with elastic workers, of which the first hosts the rendezvous."""
    # The operator names its workers so.
    endpoint = f"{config.name}-worker-0:{config.port}"
    words = torchrun_arguments(config, endpoint=endpoint, run_id=config.name)
    # The stop file becomes $0 of the script, and what follows "$@", which it runs.
    shell = ["bash", "-c", _WARNED, config.stop_file]
    pod = _pod(config, [*shell, torchrun_program(config), *words], port_name="pytorchjob-port")
    worker = {
        "replicas": config.nodes,
        "restartPolicy": "OnFailure" if config.job_restarts else "Never",
        "template": {"spec": pod},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": config.name},
        "spec": {
            "nprocPerNode": str(config.processes_per_node),
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "rdzvPort": config.port,
                "rdzvId": config.name,
                # As many at least as at most: it waits for all machines, and never runs on fewer.
                "minReplicas": config.nodes,
                "maxReplicas": config.nodes,
                "maxRestarts": config.max_restarts,
            },
            "runPolicy": {
                "activeDeadlineSeconds": config.seconds,
                "backoffLimit": config.job_restarts,
                # Pods that have ended stay, and with them their logs.
                "cleanPodPolicy": "Running",
            },
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def _pod(config: LaunchConfig, command: list[str], *, port_name: str) -> Manifest:
    """Return one pod: the container, the shared folder, and shared memory for NCCL."""
    container: Manifest = {
        "name": _CONTAINER,
        "image": config.image,
        "command": [_literal(word) for word in command],
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "ports": [{"name": port_name, "containerPort": config.port}],
        "volumeMounts": [
            {"name": "shared", "mountPath": config.mount},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    if resources := _resources(config):
        container["resources"] = {"requests": dict(resources), "limits": dict(resources)}
    return {
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": config.claim}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY}},
        ],
    }


def _resources(config: LaunchConfig) -> dict[str, str]:
    """Return what a pod asks for; quantities are text."""
    wanted = {
        "nvidia.com/gpu": (config.gpus_per_node, ""),
        "cpu": (config.cpus_per_node, ""),
        "memory": (config.memory_gb_per_node, "Gi"),
    }
    return {name: f"{amount}{unit}" for name, (amount, unit) in wanted.items() if amount}


def _literal(word: str) -> str:
    """Keep Kubernetes from filling in "$(NAME)": it reads "$$" as "$"."""
    return re.sub(r"\$(?=[$(])", "$$", word)
