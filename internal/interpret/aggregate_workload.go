package interpret

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// whole is the part of the aggregation that the status tells of: all reachable
// rows when divided, the least finished one otherwise.
func (a *aggregation) whole(least row) *aggregation {
	if a.divided {
		return a
	}
	one := *a
	one.rows = []row{least}
	return &one
}

// replicaCounts of a replicated kind: summed, or the least finished row's plus what
// that cluster was told not to run.
func (a *aggregation) replicaCounts(names []string, least row) []int64 {
	if a.divided {
		return a.sum(len(names))
	}
	n := least.all(len(names))
	if missing := countOr(spec(a.template), "replicas", 1) - n[0]; missing > 0 && least.current() {
		for i := range n {
			n[i] = atoll.Plus(n[i], missing)
		}
	}
	return n
}

// current tells that the row is about the template's present content.
func (r row) current() bool { return r.reported && !r.Stale && !r.has(flagLate) }

// replicaProgress: fewer missing available, then updated, replicas are more finished.
func replicaProgress(r row) []int64 {
	return []int64{healthRank[r.Health], r.n(4) - r.n(0), r.n(2) - r.n(0), r.n(2) - r.n(1), r.n(3)}
}

func aggregateDeployment(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(replicaProgress)
	told := a.whole(least)
	n := a.replicaCounts(deploymentCounts, least)
	st := map[string]any{}
	counted(st, deploymentCounts, n)
	if n[1] > n[4] {
		st["unavailableReplicas"] = n[1] - n[4]
	}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	cs := []any{
		a.condition(told.availability(least.Cluster), true),
		a.condition(told.progress(least.Cluster), true),
	}
	if cluster, ok := told.carrying(flagCreation); ok {
		cs = append(cs, a.condition(creationFailure(cluster), true))
	}
	st["conditions"] = cs
	return st, true
}

func (a *aggregation) availability(least string) condition {
	if a.every(flagAvailable) {
		return condition{kind: "Available", status: "True", reason: "MinimumReplicasAvailable",
			message: "every reachable cluster has its minimum of available replicas"}
	}
	return condition{kind: "Available", status: "False", reason: "MinimumReplicasUnavailable",
		message: fmt.Sprintf("cluster %s is the furthest from its minimum of available replicas", least)}
}

func (a *aggregation) progress(least string) condition {
	if cluster, ok := a.carrying(flagDeadline); ok {
		return condition{kind: "Progressing", status: "False", reason: deadlineExceeded,
			message: fmt.Sprintf("cluster %s exceeded the progress deadline", cluster)}
	}
	if _, ok := a.carrying(flagPaused); ok {
		return condition{kind: "Progressing", status: "Unknown", reason: "DeploymentPaused", message: "the rollout is paused"}
	}
	if a.every(flagDone) {
		return condition{kind: "Progressing", status: "True", reason: newReplicaSetAvailable,
			message: "every reachable cluster has finished the rollout"}
	}
	return condition{kind: "Progressing", status: "True", reason: "ReplicaSetUpdated",
		message: fmt.Sprintf("cluster %s is the furthest from finishing the rollout", least)}
}

func creationFailure(cluster string) condition {
	return condition{kind: "ReplicaFailure", status: "True", reason: "FailedCreate",
		message: fmt.Sprintf("cluster %s cannot create pods", cluster)}
}

func aggregateStatefulSet(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(replicaProgress)
	st := map[string]any{}
	counted(st, statefulSetCounts, a.replicaCounts(statefulSetCounts, least))
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	// Members name revisions as they like; on the hub a revision is a generation.
	update := fmt.Sprintf("%s-%d", a.template.GetName(), a.observed)
	current := update
	if !a.whole(least).every(flagDone) {
		current = text(a.old, "currentRevision")
		if current == "" || current == update {
			current = fmt.Sprintf("%s-%d", a.template.GetName(), max(a.observed-1, 0))
		}
	}
	st["updateRevision"], st["currentRevision"] = update, current
	return st, true
}

func aggregateReplicaSet(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 {
		return []int64{healthRank[r.Health], r.n(4) - r.n(0), r.n(3) - r.n(0), r.n(1)}
	})
	st := map[string]any{}
	counted(st, replicaSetCounts, a.replicaCounts(replicaSetCounts, least))
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if cluster, ok := a.whole(least).carrying(flagCreation); ok {
		st["conditions"] = []any{a.condition(creationFailure(cluster), false)}
	}
	return st, true
}

func aggregateDaemonSet(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 {
		return []int64{healthRank[r.Health], r.n(4) - r.n(0), r.n(2) - r.n(0), r.n(3)}
	})
	n := least.all(len(daemonSetCounts))
	if a.divided {
		n = a.sum(len(daemonSetCounts))
	}
	st := map[string]any{}
	counted(st, daemonSetCounts, n)
	if missing := n[0] - n[4]; missing > 0 {
		st["numberUnavailable"] = missing
	}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	return st, true
}
