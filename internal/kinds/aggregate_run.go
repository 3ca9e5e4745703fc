package kinds

import (
	"fmt"
	"slices"
	"strings"
)

// completionRank returns the rank of a row of a kind that runs to completion: 0 running, 1 failed,
// 2 succeeded.
func (r clusterRow) completionRank() int64 {
	switch {
	case r.hasFlag(flagFailed) || r.P == "Failed":
		return 1
	case r.hasFlag(flagComplete) || r.P == "Succeeded":
		return 2
	}
	return 0
}

// lowestCompletionRank returns the lowest completion rank; 0 unless every connected row has the
// template's content. A template that is deleted after its end waits for disconnected rows, too: its
// deletion would end what still runs there.
func (a *statusAggregation) lowestCompletionRank() int64 {
	rows := a.rows
	if _, ok := integerField(nestedMap(a.template.Object, "spec"), "ttlSecondsAfterFinished"); ok {
		rows = slices.Concat(rows, a.disconnected)
	}
	lowest := int64(2)
	for _, r := range rows {
		if !r.reported || r.Stale {
			return 0
		}
		lowest = min(lowest, r.completionRank())
	}
	return lowest
}

// aggregateJob makes only transitions that the API server accepts. A finished Job is unchanged,
// start and completion times never change, counters never decrease, and a terminal condition
// comes with its companion.
func aggregateJob(a *statusAggregation) (map[string]any, bool) {
	old := conditionsOf(a.templateStatus)
	if a.hasNothingToWrite() || findCondition(old, "Complete").hasStatus("True") || findCondition(old, "Failed").hasStatus("True") {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 { return []int64{r.completionRank(), r.countAt(2)} })
	n := least.firstCounts(len(jobCounts))
	if a.divided {
		n = a.sumCounts(len(jobCounts))
	}
	started := false
	for _, r := range a.rows {
		started = started || r.reported
	}
	if !started {
		return nil, false
	}
	ended := a.lowestCompletionRank()
	if ended != 0 {
		n[0], n[1] = 0, 0
	}
	n[1] = min(n[1], n[0])
	n[2], n[3] = max(n[2], countField(a.templateStatus, "succeeded")), max(n[3], countField(a.templateStatus, "failed"))
	st := map[string]any{}
	setNonZeroCounts(st, jobCounts, n)
	a.setIndexLists(st, least)
	a.setJobTimes(st, ended)
	if cs := a.buildJobConditions(ended); len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

func (a *statusAggregation) setJobTimes(st map[string]any, ended int64) {
	var start, completion int64
	for _, r := range a.rows {
		if t := a.plausibleTime(r.timeAt(0)); t != 0 && (start == 0 || t < start) {
			start = t
		}
		completion = max(completion, a.plausibleTime(r.timeAt(1)))
	}
	switch old := stringField(a.templateStatus, "startTime"); {
	case old != "":
		st["startTime"] = old
		start = unixSecondsOf(a.templateStatus, "startTime")
	case start != 0:
		st["startTime"] = formatTimestamp(start)
	case ended != 0:
		st["startTime"] = TimePlaceholder
	}
	if ended != 2 {
		return
	}
	st["completionTime"] = TimePlaceholder
	if completion != 0 && start != 0 {
		st["completionTime"] = formatTimestamp(max(completion, start))
	}
}

func (a *statusAggregation) buildJobConditions(ended int64) []any {
	var cs []condition
	switch ended {
	case 1:
		reason, message := "Failed", "the job failed"
		first := ""
		for _, r := range a.rows {
			if r.completionRank() != 1 || first != "" && first < r.Cluster {
				continue
			}
			first = r.Cluster
			reason = orElse(findCondition(unpackConditions(r.C), "Failed").reason, "Failed")
			message = fmt.Sprintf("the job failed in cluster %s", first)
		}
		cs = append(cs,
			condition{conditionType: "FailureTarget", status: "True", reason: reason, message: message},
			condition{conditionType: "Failed", status: "True", reason: reason, message: message})
	case 2:
		message := "the job is complete in every reachable cluster"
		cs = append(cs,
			condition{conditionType: "SuccessCriteriaMet", status: "True", reason: "CompletionsReached", message: message},
			condition{conditionType: "Complete", status: "True", reason: "CompletionsReached", message: message})
	}
	switch {
	case ended == 0 && a.allRowsHave(flagSuspended):
		cs = append(cs, condition{conditionType: "Suspended", status: "True", reason: "JobSuspended", message: "the job is suspended"})
	case findCondition(conditionsOf(a.templateStatus), "Suspended").conditionType != "":
		cs = append(cs, condition{conditionType: "Suspended", status: "False", reason: "JobResumed", message: "the job is resumed"})
	}
	out := make([]any, 0, len(cs))
	for _, c := range cs {
		m := a.buildCondition(c, false)
		m["lastProbeTime"] = m["lastTransitionTime"]
		out = append(out, m)
	}
	return out
}

// maxJoinedActive is the most active Jobs in the status of a CronJob, however many clusters run them.
const maxJoinedActive = 100

// joinActiveJobs returns the active Jobs of all clusters, by cluster. Jobs of equal times have equal
// names in all clusters, so a name can be there several times.
func (a *statusAggregation) joinActiveJobs() []any {
	rows := slices.SortedFunc(slices.Values(a.rows), func(x, y clusterRow) int { return strings.Compare(x.Cluster, y.Cluster) })
	var out []any
	for _, r := range rows {
		for range r.EqualClusters + 1 {
			for _, name := range r.L {
				if len(out) == maxJoinedActive {
					return out
				}
				out = append(out, map[string]any{"apiVersion": "batch/v1", "kind": "Job", "namespace": a.template.GetNamespace(), "name": name})
			}
		}
	}
	return out
}

// aggregateCronJob returns the latest times of all clusters, and their active Jobs.
func aggregateCronJob(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	last, good := a.plausibleTime(unixSecondsOf(a.templateStatus, "lastScheduleTime")), a.plausibleTime(unixSecondsOf(a.templateStatus, "lastSuccessfulTime"))
	for _, r := range a.rows {
		last, good = max(last, a.plausibleTime(r.timeAt(0))), max(good, a.plausibleTime(r.timeAt(1)))
	}
	st := map[string]any{}
	if last != 0 {
		st["lastScheduleTime"] = formatTimestamp(last)
	}
	if good != 0 {
		st["lastSuccessfulTime"] = formatTimestamp(good)
	}
	if active := a.joinActiveJobs(); len(active) > 0 {
		st["active"] = active
	}
	return st, true
}

var podPhaseRank = map[string]int64{"Pending": 1, "Unknown": 2, "Running": 3, "Failed": 4, "Succeeded": 5}

func aggregatePod(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 {
		return []int64{min(r.completionRank(), 1), healthRank[r.Health], podPhaseRank[r.P]}
	})
	st := a.copyTemplateStatus()
	st["phase"] = orElse(least.P, "Pending")
	delete(st, "conditions")
	if len(least.C) > 0 {
		cs := make([]any, 0, len(least.C))
		for _, c := range unpackConditions(least.C) {
			cs = append(cs, a.buildCondition(c, false))
		}
		st["conditions"] = cs
	}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	return st, true
}
