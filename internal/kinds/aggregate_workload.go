package kinds

import (
	"fmt"

	"atoll.dev/atoll/internal/quantity"
)

// withRelevantRows returns the aggregation with the rows that make up the status: all connected rows
// where the item is divided, or else the least finished one.
func (a *statusAggregation) withRelevantRows(least clusterRow) *statusAggregation {
	if a.divided {
		return a
	}
	one := *a
	one.rows = []clusterRow{least}
	return &one
}

// replicaCounts returns the sums of a divided item, or else the counts of the least finished row
// plus the replicas that an override took from its cluster.
func (a *statusAggregation) replicaCounts(names []string, least clusterRow) []int64 {
	if a.divided {
		return a.sumCounts(len(names))
	}
	n := least.firstCounts(len(names))
	if missing := countFieldOr(specOf(a.template), "replicas", 1) - n[0]; missing > 0 && least.isCurrent() {
		for i := range n {
			n[i] = quantity.AddCapped(n[i], missing)
		}
	}
	return n
}

// isCurrent reports whether the row is about the template's present content.
func (r clusterRow) isCurrent() bool { return r.reported && !r.Stale && !r.hasFlag(flagOutdated) }

// replicaProgress compares by health, then by missing available replicas, then by missing
// updated ones.
func replicaProgress(r clusterRow) []int64 {
	return []int64{healthRank[r.Health], r.countAt(4) - r.countAt(0), r.countAt(2) - r.countAt(0), r.countAt(2) - r.countAt(1), r.countAt(3)}
}

func aggregateDeployment(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(replicaProgress)
	relevant := a.withRelevantRows(least)
	n := a.replicaCounts(deploymentCounts, least)
	st := map[string]any{}
	setNonZeroCounts(st, deploymentCounts, n)
	setNonZeroCounts(st, []string{"terminatingReplicas", "unavailableReplicas"}, []int64{a.unadjustedCount(terminatingAt, least), max(n[1]-n[4], a.unadjustedCount(unavailableAt, least))})
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	cs := []any{
		a.buildCondition(relevant.availableCondition(least.Cluster), true),
		a.buildCondition(relevant.progressingCondition(least.Cluster), true),
	}
	if cluster, ok := relevant.firstClusterWith(flagCreation); ok {
		cs = append(cs, a.buildCondition(creationFailureCondition(cluster), true))
	}
	st["conditions"] = cs
	return st, true
}

// unadjustedCount returns a count to which replicas that an override took add nothing.
func (a *statusAggregation) unadjustedCount(at int, least clusterRow) int64 {
	if a.divided {
		return a.sumCounts(at + 1)[at]
	}
	return least.countAt(at)
}

func (a *statusAggregation) availableCondition(least string) condition {
	if a.allRowsHave(flagAvailable) {
		return condition{conditionType: "Available", status: "True", reason: "MinimumReplicasAvailable",
			message: "every reachable cluster has its minimum of available replicas"}
	}
	return condition{conditionType: "Available", status: "False", reason: "MinimumReplicasUnavailable",
		message: fmt.Sprintf("cluster %s is the furthest from its minimum of available replicas", least)}
}

func (a *statusAggregation) progressingCondition(least string) condition {
	if cluster, ok := a.firstClusterWith(flagDeadline); ok {
		return condition{conditionType: "Progressing", status: "False", reason: progressDeadlineExceeded,
			message: fmt.Sprintf("cluster %s exceeded the progress deadline", cluster)}
	}
	if _, ok := a.firstClusterWith(flagPaused); ok {
		return condition{conditionType: "Progressing", status: "Unknown", reason: "DeploymentPaused", message: "the rollout is paused"}
	}
	if a.allRowsHave(flagDone) {
		return condition{conditionType: "Progressing", status: "True", reason: newReplicaSetAvailable,
			message: "every reachable cluster has finished the rollout"}
	}
	return condition{conditionType: "Progressing", status: "True", reason: "ReplicaSetUpdated",
		message: fmt.Sprintf("cluster %s is the furthest from finishing the rollout", least)}
}

func creationFailureCondition(cluster string) condition {
	return condition{conditionType: "ReplicaFailure", status: "True", reason: "FailedCreate",
		message: fmt.Sprintf("cluster %s cannot create pods", cluster)}
}

func aggregateStatefulSet(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(replicaProgress)
	st := map[string]any{}
	setNonZeroCounts(st, statefulSetCounts, a.replicaCounts(statefulSetCounts, least))
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	// Members name revisions on their own; on the hub a revision is a generation.
	update := fmt.Sprintf("%s-%d", a.template.GetName(), a.observed)
	current := update
	if !a.withRelevantRows(least).allRowsHave(flagDone) {
		current = stringField(a.templateStatus, "currentRevision")
		if current == "" || current == update {
			current = fmt.Sprintf("%s-%d", a.template.GetName(), max(a.observed-1, 0))
		}
	}
	st["updateRevision"], st["currentRevision"] = update, current
	return st, true
}

func aggregateReplicaSet(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 {
		return []int64{healthRank[r.Health], r.countAt(4) - r.countAt(0), r.countAt(3) - r.countAt(0), r.countAt(1)}
	})
	st := map[string]any{}
	setNonZeroCounts(st, replicaSetCounts, a.replicaCounts(replicaSetCounts, least))
	setNonZeroCounts(st, []string{"terminatingReplicas"}, []int64{a.unadjustedCount(terminatingAt, least)})
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if cluster, ok := a.withRelevantRows(least).firstClusterWith(flagCreation); ok {
		st["conditions"] = []any{a.buildCondition(creationFailureCondition(cluster), false)}
	}
	return st, true
}

func aggregateDaemonSet(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 {
		return []int64{healthRank[r.Health], r.countAt(4) - r.countAt(0), r.countAt(2) - r.countAt(0), r.countAt(3)}
	})
	n := least.firstCounts(len(daemonSetCounts))
	if a.divided {
		n = a.sumCounts(len(daemonSetCounts))
	}
	st := map[string]any{}
	setNonZeroCounts(st, daemonSetCounts, n)
	if missing := n[0] - n[4]; missing > 0 {
		st["numberUnavailable"] = missing
	}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	return st, true
}
