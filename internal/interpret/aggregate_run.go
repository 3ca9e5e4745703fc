package interpret

import "fmt"

// finality of a row of a run-to-completion kind: 0 running, 1 failed, 2 succeeded.
func (r row) finality() int64 {
	switch {
	case r.has(flagFailed) || r.P == "Failed":
		return 1
	case r.has(flagComplete) || r.P == "Succeeded":
		return 2
	}
	return 0
}

// ended gives the lowest finality if every reachable row has the template's
// content and has ended.
func (a *aggregation) ended() int64 {
	lowest := int64(2)
	for _, r := range a.rows {
		if !r.reported || r.Stale {
			return 0
		}
		lowest = min(lowest, r.finality())
	}
	return lowest
}

// aggregateJob makes only transitions that the API server accepts: a finished Job
// stays as it is, start and completion never change, counters never fall, and the
// terminal condition comes with its companion.
func aggregateJob(a *aggregation) (map[string]any, bool) {
	old := conditionsOf(a.old)
	if a.quiet() || find(old, "Complete").is("True") || find(old, "Failed").is("True") {
		return nil, false
	}
	least := a.least(func(r row) []int64 { return []int64{r.finality(), r.n(2)} })
	n := least.all(len(jobCounts))
	if a.divided {
		n = a.sum(len(jobCounts))
	}
	started := false
	for _, r := range a.rows {
		started = started || r.reported
	}
	if !started {
		return nil, false
	}
	ended := a.ended()
	if ended != 0 {
		n[0], n[1] = 0, 0
	}
	n[1] = min(n[1], n[0])
	n[2], n[3] = max(n[2], count(a.old, "succeeded")), max(n[3], count(a.old, "failed"))
	st := map[string]any{}
	counted(st, jobCounts, n)
	a.jobTimes(st, ended)
	if cs := a.jobConditions(ended); len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

func (a *aggregation) jobTimes(st map[string]any, ended int64) {
	var start, completion int64
	for _, r := range a.rows {
		if t := r.t(0); t != 0 && (start == 0 || t < start) {
			start = t
		}
		completion = max(completion, r.t(1))
	}
	switch old := text(a.old, "startTime"); {
	case old != "":
		st["startTime"] = old
		start = seconds(a.old, "startTime")
	case start != 0:
		st["startTime"] = timestamp(start)
	case ended != 0:
		st["startTime"] = Now
	}
	if ended != 2 {
		return
	}
	st["completionTime"] = Now
	if completion != 0 && start != 0 {
		st["completionTime"] = timestamp(max(completion, start))
	}
}

func (a *aggregation) jobConditions(ended int64) []any {
	var cs []condition
	switch ended {
	case 1:
		reason, message := "Failed", "the job failed"
		first := ""
		for _, r := range a.rows {
			if r.finality() != 1 || first != "" && first < r.Cluster {
				continue
			}
			first = r.Cluster
			reason = orElse(find(unpackConditions(r.C), "Failed").reason, "Failed")
			message = fmt.Sprintf("the job failed in cluster %s", first)
		}
		cs = append(cs,
			condition{kind: "FailureTarget", status: "True", reason: reason, message: message},
			condition{kind: "Failed", status: "True", reason: reason, message: message})
	case 2:
		message := "the job is complete in every reachable cluster"
		cs = append(cs,
			condition{kind: "SuccessCriteriaMet", status: "True", reason: "CompletionsReached", message: message},
			condition{kind: "Complete", status: "True", reason: "CompletionsReached", message: message})
	}
	switch {
	case ended == 0 && a.every(flagSuspended):
		cs = append(cs, condition{kind: "Suspended", status: "True", reason: "JobSuspended", message: "the job is suspended"})
	case find(conditionsOf(a.old), "Suspended").kind != "":
		cs = append(cs, condition{kind: "Suspended", status: "False", reason: "JobResumed", message: "the job is resumed"})
	}
	out := make([]any, 0, len(cs))
	for _, c := range cs {
		m := a.condition(c, false)
		m["lastProbeTime"] = m["lastTransitionTime"]
		out = append(out, m)
	}
	return out
}

// aggregateCronJob tells the latest times of all; what is active stays in members.
func aggregateCronJob(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	last, good := seconds(a.old, "lastScheduleTime"), seconds(a.old, "lastSuccessfulTime")
	for _, r := range a.rows {
		last, good = max(last, r.t(0)), max(good, r.t(1))
	}
	st := map[string]any{}
	if last != 0 {
		st["lastScheduleTime"] = timestamp(last)
	}
	if good != 0 {
		st["lastSuccessfulTime"] = timestamp(good)
	}
	return st, true
}

var podPhaseRank = map[string]int64{"Pending": 1, "Unknown": 2, "Running": 3, "Failed": 4, "Succeeded": 5}

func aggregatePod(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 {
		return []int64{min(r.finality(), 1), healthRank[r.Health], podPhaseRank[r.P]}
	})
	st := a.copied()
	st["phase"] = orElse(least.P, "Pending")
	delete(st, "conditions")
	if len(least.C) > 0 {
		cs := make([]any, 0, len(least.C))
		for _, c := range unpackConditions(least.C) {
			cs = append(cs, a.condition(c, false))
		}
		st["conditions"] = cs
	}
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	return st, true
}
