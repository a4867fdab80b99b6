"""What the controllers of custom resources do, as far as reclaim sees it: they stop and start pods."""

from collections.abc import Callable, Mapping

from gpusteward.analyzer.reclaim.kinds.objects import read_pointer
from tests.analyzer.reclaim.chaos.fleet import DIRECT, STOPPED, Subject, make_pod_of
from tests.analyzer.reclaim.chaos.informers import Informer
from tests.kubernetes.cluster import ApiError, Cluster, Json, path_of

MERGE = "application/merge-patch+json"
PAUSED = "/metadata/annotations/autoscaling.keda.sh~1paused-replicas"


class Controllers:
    """Called between cycles; looks at the objects that the informers have."""

    def __init__(self, cluster: Cluster, informers: Mapping[str, Informer], subjects: list[Subject]) -> None:
        self._cluster, self._informers = cluster, informers
        self._subjects = subjects
        self._follow: dict[str, Callable[[Subject, Json], bool]] = {
            **dict.fromkeys(DIRECT, self._follow_direct),
            "VolcanoJob": self._follow_direct,
            "Notebook": self._follow_notebook,
            "KueueJob": self._follow_kueue,
            "KedaDeployment": self._follow_keda,
        }

    def run(self, pods: Mapping[str, list[Json]]) -> bool:
        """Once; whether something had to be changed. `pods`: by name of the workload."""
        has_changed = self._obey_commands()
        for subject in self._subjects:
            follow = self._follow.get(subject.kind)
            target = self.find(subject.target_uid)
            if follow is not None and target is not None:
                self._pods = pods.get(subject.name, [])
                has_changed |= follow(subject, target)
        return has_changed

    def find(self, uid: str) -> Json | None:
        for informer in self._informers.values():
            if uid in informer.objects:
                return informer.objects[uid]
        return None

    def _follow_direct(self, subject: Subject, target: Json) -> bool:
        if subject.is_suspended(target):
            for pod in self._pods:
                self._ignore_missing("DELETE", pod)
            return bool(self._pods)
        names = {pod["metadata"]["name"] for pod in self._pods}
        wanted = [make_pod_of(subject, target, number) for number in range(subject.pods)]
        missing = [pod for pod in wanted if pod["metadata"]["name"] not in names]
        self._cluster.apply(*missing)
        return bool(missing)

    def _follow_notebook(self, subject: Subject, target: Json) -> bool:
        stateful = self._informers["apps/v1/StatefulSet"].objects
        [found] = [stateful[uid] for uid in subject.objects if uid in stateful]
        return self._set(found, "/spec/replicas", 0 if read_pointer(target, STOPPED) is not None else 1)

    def _follow_kueue(self, subject: Subject, target: Json) -> bool:
        job = self.find(subject.owner_uid)
        assert job is not None
        return self._set(job, "/spec/suspend", target["spec"].get("active") is False)

    def _follow_keda(self, subject: Subject, target: Json) -> bool:
        deployment, paused = self.find(subject.owner_uid), read_pointer(target, PAUSED)
        assert deployment is not None
        return self._set(deployment, "/spec/replicas", subject.pods if paused is None else int(paused))

    def _set(self, item: Json, pointer: str, value: object) -> bool:
        if read_pointer(item, pointer) == value:
            return False
        self._cluster.request(
            "PATCH", path_of(item), {"spec": {pointer.rsplit("/", maxsplit=1)[-1]: value}}, media=MERGE
        )
        return True

    def _obey_commands(self) -> bool:
        """Of Volcano: carried out in the order of their creation, and removed. Those of other tests are not touched."""
        namespaces = {subject.namespace for subject in self._subjects}
        found = self._informers["bus.volcano.sh/v1alpha1/Command"].list()
        commands = sorted(
            (each for each in found if each["metadata"]["namespace"] in namespaces),
            key=lambda each: int(each["metadata"]["resourceVersion"]),
        )
        jobs = self._informers["batch.volcano.sh/v1/Job"].objects
        for command in commands:
            job = jobs.get(command["target"]["uid"])
            phase = "Aborted" if command["action"] == "AbortJob" else "Running"
            if job is not None:
                body = {"status": {"state": {"phase": phase}}}
                self._ignore_missing("PATCH", job, body)
            self._ignore_missing("DELETE", command)
        return bool(commands)

    def _ignore_missing(self, method: str, item: Json, body: Json | None = None) -> None:
        try:
            self._cluster.request(method, path_of(item), body, media=MERGE if body else "application/json")
        except ApiError as error:
            if error.status != 404:
                raise
