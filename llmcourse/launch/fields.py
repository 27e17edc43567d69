"""Every field and option that a job of ours uses, each with the page that documents it.

`problems` checks a manifest against these lists: a field that is not in them is taken for a
misspelt one, since a cluster may ignore it in silence.

Taught in: chapters/31_failures.ipynb
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

_SBATCH = "https://slurm.schedmd.com/sbatch.html#OPT_"
_SRUN = "https://slurm.schedmd.com/srun.html#OPT_"
_PYXIS = "https://github.com/NVIDIA/pyxis/wiki/Usage"
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_RENDEZVOUS = "https://docs.pytorch.org/docs/stable/elastic/rendezvous.html"
_JOBSET = "https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/#jobset-x-k8s-io-v1alpha2-"
_KUBERNETES = "https://kubernetes.io/docs/reference/kubernetes-api/"
_OBJECT = f"{_KUBERNETES}common-definitions/object-meta/#ObjectMeta"
_BATCH_JOB = f"{_KUBERNETES}workload-resources/job-v1/#JobSpec"
_POD = f"{_KUBERNETES}workload-resources/pod-v1/#PodSpec"
_CONTAINER = f"{_KUBERNETES}workload-resources/pod-v1/#Container"
_VOLUME = f"{_KUBERNETES}config-and-storage-resources/volume/#Volume"
_GPU = "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/"
_PYTORCHJOB = (
    "https://github.com/kubeflow/trainer/blob/release-1.9/pkg/apis/kubeflow.org/v1/pytorch_types.go"
)
_COMMON = (
    "https://github.com/kubeflow/trainer/blob/release-1.9/pkg/apis/kubeflow.org/v1/common_types.go"
)

SBATCH_OPTIONS = {
    "job-name": f"{_SBATCH}job-name",
    "nodes": f"{_SBATCH}nodes",
    "ntasks-per-node": f"{_SBATCH}ntasks-per-node",
    "gpus-per-node": f"{_SBATCH}gpus-per-node",
    "cpus-per-task": f"{_SBATCH}cpus-per-task",
    "mem": f"{_SBATCH}mem",
    "time": f"{_SBATCH}time",
    "signal": f"{_SBATCH}signal",
    "requeue": f"{_SBATCH}requeue",
    "no-requeue": f"{_SBATCH}no-requeue",
    "open-mode": f"{_SBATCH}open-mode",
    "output": f"{_SBATCH}output",
    "partition": f"{_SBATCH}partition",
    "account": f"{_SBATCH}account",
}
SRUN_OPTIONS = {
    "nodes": f"{_SRUN}nodes",
    "ntasks": f"{_SRUN}ntasks",
    "ntasks-per-node": f"{_SRUN}ntasks-per-node",
    "kill-on-bad-exit": f"{_SRUN}kill-on-bad-exit",
    "cpus-per-task": f"{_SRUN}cpus-per-task",
    "container-image": _PYXIS,
    "container-mounts": _PYXIS,
}
TORCHRUN_OPTIONS = {
    "nnodes": _TORCHRUN,
    "nproc_per_node": _TORCHRUN,
    "rdzv_backend": _TORCHRUN,
    "rdzv_endpoint": _TORCHRUN,
    "rdzv_id": _TORCHRUN,
    "rdzv_conf": _RENDEZVOUS,
    "max_restarts": _TORCHRUN,
}


class Field(NamedTuple):
    """What a field of a manifest may hold."""

    kind: type
    link: str
    required: bool = True
    allowed: tuple = ()
    """The values it may have; empty for any."""


def _object_fields(api: str, kind: str, link: str) -> dict[str, Field]:
    return {
        "apiVersion": Field(str, link, allowed=(api,)),
        "kind": Field(str, link, allowed=(kind,)),
        "metadata.name": Field(str, _OBJECT),
        "metadata.namespace": Field(str, _OBJECT, required=False),
    }


def _pod_fields(at: str) -> dict[str, Field]:
    """Return the fields of a pod's specification at a path."""
    box, volume = f"{at}.containers[]", f"{at}.volumes[]"
    amounts = {
        f"{box}.resources.{part}.{name}": Field(str, link, required=False)
        for part in ("requests", "limits")
        for name, link in (("nvidia.com/gpu", _GPU), ("cpu", _CONTAINER), ("memory", _CONTAINER))
    }
    return {
        f"{box}.name": Field(str, _CONTAINER, allowed=("pytorch",)),
        f"{box}.image": Field(str, _CONTAINER),
        f"{box}.command[]": Field(str, _CONTAINER),
        f"{box}.env[].name": Field(str, _CONTAINER),
        f"{box}.env[].value": Field(str, _CONTAINER),
        f"{box}.ports[].name": Field(str, _CONTAINER),
        f"{box}.ports[].containerPort": Field(int, _CONTAINER),
        f"{box}.volumeMounts[].name": Field(str, _CONTAINER),
        f"{box}.volumeMounts[].mountPath": Field(str, _CONTAINER),
        **amounts,
        f"{volume}.name": Field(str, _VOLUME),
        f"{volume}.persistentVolumeClaim.claimName": Field(str, _VOLUME),
        f"{volume}.emptyDir.medium": Field(str, _VOLUME, allowed=("Memory",)),
        f"{volume}.emptyDir.sizeLimit": Field(str, _VOLUME),
    }


_JOB = "spec.replicatedJobs[].template.spec"
JOBSET_FIELDS = {
    **_object_fields("jobset.x-k8s.io/v1alpha2", "JobSet", f"{_JOBSET}JobSet"),
    "spec.network.enableDNSHostnames": Field(bool, f"{_JOBSET}Network", allowed=(True,)),
    "spec.network.subdomain": Field(str, f"{_JOBSET}Network"),
    "spec.failurePolicy.maxRestarts": Field(int, f"{_JOBSET}FailurePolicy"),
    "spec.failurePolicy.rules[].name": Field(str, f"{_JOBSET}FailurePolicyRule"),
    "spec.failurePolicy.rules[].action": Field(
        str, f"{_JOBSET}FailurePolicyRule", allowed=("FailJobSet",)
    ),
    "spec.failurePolicy.rules[].onJobFailureReasons[]": Field(
        str, f"{_JOBSET}FailurePolicyRule", allowed=("DeadlineExceeded",)
    ),
    "spec.replicatedJobs[].name": Field(str, f"{_JOBSET}ReplicatedJob"),
    "spec.replicatedJobs[].replicas": Field(int, f"{_JOBSET}ReplicatedJob", allowed=(1,)),
    f"{_JOB}.parallelism": Field(int, _BATCH_JOB),
    f"{_JOB}.completions": Field(int, _BATCH_JOB),
    f"{_JOB}.completionMode": Field(str, _BATCH_JOB, allowed=("Indexed",)),
    f"{_JOB}.backoffLimit": Field(int, _BATCH_JOB, allowed=(0,)),
    f"{_JOB}.activeDeadlineSeconds": Field(int, _BATCH_JOB),
    f"{_JOB}.template.spec.restartPolicy": Field(str, _POD, allowed=("Never",)),
    **_pod_fields(f"{_JOB}.template.spec"),
}

_WORKER = "spec.pytorchReplicaSpecs.Worker"
PYTORCHJOB_FIELDS = {
    **_object_fields("kubeflow.org/v1", "PyTorchJob", _PYTORCHJOB),
    "spec.nprocPerNode": Field(str, _PYTORCHJOB),
    "spec.elasticPolicy.rdzvBackend": Field(str, _PYTORCHJOB, allowed=("c10d",)),
    "spec.elasticPolicy.rdzvPort": Field(int, _PYTORCHJOB),
    "spec.elasticPolicy.rdzvId": Field(str, _PYTORCHJOB),
    "spec.elasticPolicy.minReplicas": Field(int, _PYTORCHJOB),
    "spec.elasticPolicy.maxReplicas": Field(int, _PYTORCHJOB),
    "spec.elasticPolicy.maxRestarts": Field(int, _PYTORCHJOB),
    "spec.runPolicy.activeDeadlineSeconds": Field(int, _COMMON),
    "spec.runPolicy.backoffLimit": Field(int, _COMMON),
    "spec.runPolicy.cleanPodPolicy": Field(str, _COMMON, allowed=("Running",)),
    f"{_WORKER}.replicas": Field(int, _COMMON),
    f"{_WORKER}.restartPolicy": Field(str, _COMMON, allowed=("OnFailure", "Never")),
    **_pod_fields(f"{_WORKER}.template.spec"),
}

FIELDS = {"JobSet": JOBSET_FIELDS, "PyTorchJob": PYTORCHJOB_FIELDS}


def leaves(node: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every entry; "[]" stands for any place of a list."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from leaves(value, f"{at}.{name}" if at else str(name))
    elif isinstance(node, list):
        for value in node:
            yield from leaves(value, f"{at}[]")
    else:
        yield at, node


def problems(manifest: dict[str, Any]) -> list[str]:
    """Say what is wrong with the fields of a manifest of ours; nothing is wrong in an empty list.

    A required field has to be there once at least; in a list, not in every entry.
    """
    known = FIELDS.get(manifest.get("kind", ""))
    if known is None:
        return [f"kind: must be one of {', '.join(FIELDS)}, got {manifest.get('kind')!r}"]
    found, said = set(), []
    for path, value in leaves(manifest):
        found.add(path)
        field = known.get(path)
        if field is None:
            said.append(f"{path}: no field of ours")
        elif type(value) is not field.kind:
            said.append(f"{path}: must be {field.kind.__name__}, got {value!r}")
        elif field.allowed and value not in field.allowed:
            said.append(f"{path}: must be one of {field.allowed}, got {value!r}")
    missing = [path for path, field in known.items() if field.required and path not in found]
    return said + [f"{path}: is missing" for path in missing]
