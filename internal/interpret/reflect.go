package interpret

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reflected is the compact form that travels in rows. Each kind gives its fields
// their meaning; absent fields are zero.
type reflected struct {
	// N holds counts in the order that the kind's counts variable lists.
	N []int64 `json:"n,omitempty"`
	// F holds flags, one letter each.
	F string `json:"f,omitempty"`
	// T holds times in Unix seconds, 0 for none.
	T []int64 `json:"t,omitempty"`
	// P is the phase.
	P string `json:"p,omitempty"`
	// L holds addresses or quantities.
	L []string `json:"l,omitempty"`
	// C holds conditions: "Type=T:Reason", status T, F or U; "Type=T*:Reason" when
	// the condition has an observedGeneration of its own.
	C []string `json:"c,omitempty"`
	// A holds what gateways say of what hangs on them.
	A []parent `json:"a,omitempty"`
}

// Flags of reflected.F.
const (
	flagLate      = "l" // the member's controller has not seen its latest generation
	flagAvailable = "a" // Deployment: condition Available
	flagDone      = "d" // Deployment: rollout complete; StatefulSet: one revision
	flagDeadline  = "x" // Deployment: progress deadline exceeded
	flagPaused    = "p" // Deployment: paused
	flagCreation  = "e" // pods cannot be created
	flagComplete  = "c" // Job: complete
	flagFailed    = "f" // Job: failed
	flagSuspended = "s" // Job: suspended
	flagObserves  = "o" // other kinds: status has observedGeneration
)

// Counts by kind, in the order of reflected.N. The first of replicated kinds is
// what the spec asks for.
var (
	deploymentCounts  = []string{"", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}
	statefulSetCounts = []string{"", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"}
	replicaSetCounts  = []string{"", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"}
	daemonSetCounts   = []string{"desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable", "numberMisscheduled"}
	jobCounts         = []string{"active", "ready", "succeeded", "failed"}
	budgetCounts      = []string{"disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}
	autoscalerCounts  = []string{"currentReplicas", "desiredReplicas"}
)

const (
	maxConditions = 8
	maxReason     = 48
	maxAddresses  = 16
)

// Reflect gives what the template's aggregated status needs to know of an object,
// as compact JSON of about 64 bytes; nil when there is nothing to tell. Aggregate
// reads it back. Equal statuses give equal bytes.
func Reflect(obj *unstructured.Unstructured) json.RawMessage {
	st := status(obj)
	if len(st) == 0 {
		return nil
	}
	k := known(obj)
	var r reflected
	ok := false
	switch {
	case k.reflect != nil:
		r, ok = k.reflect(obj)
	case k.generic:
		r, ok = reflectGeneric(k, obj)
	}
	if !ok {
		return nil
	}
	for len(r.N) > 0 && r.N[len(r.N)-1] == 0 {
		r.N = r.N[:len(r.N)-1]
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("interpret: %T is made of plain values: %v", r, err))
	}
	return b
}

func (r reflected) n(i int) int64 {
	if i < len(r.N) {
		return r.N[i]
	}
	return 0
}

func (r reflected) t(i int) int64 {
	if i < len(r.T) {
		return r.T[i]
	}
	return 0
}

func (r reflected) has(flag string) bool { return strings.Contains(r.F, flag) }

func (r *reflected) mark(when bool, flag string) {
	if when {
		r.F += flag
	}
}

func counts(st map[string]any, names []string) []int64 {
	out := make([]int64, len(names))
	for i, name := range names {
		if name != "" {
			out[i] = count(st, name)
		}
	}
	return out
}

func reflectDeployment(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{N: counts(st, deploymentCounts)}
	r.N[0] = countOr(spec(obj), "replicas", 1)
	cs := conditionsOf(st)
	progressing := find(cs, "Progressing")
	r.mark(late(obj), flagLate)
	r.mark(find(cs, "Available").is("True"), flagAvailable)
	r.mark(progressing.is("True") && progressing.reason == newReplicaSetAvailable, flagDone)
	r.mark(progressing.is("False") && progressing.reason == deadlineExceeded, flagDeadline)
	r.mark(flag(spec(obj), "paused"), flagPaused)
	r.mark(find(cs, "ReplicaFailure").is("True"), flagCreation)
	return r, true
}

func reflectStatefulSet(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{N: counts(st, statefulSetCounts)}
	r.N[0] = countOr(spec(obj), "replicas", 1)
	r.mark(late(obj), flagLate)
	r.mark(text(st, "currentRevision") == text(st, "updateRevision"), flagDone)
	return r, true
}

func reflectReplicaSet(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{N: counts(st, replicaSetCounts)}
	r.N[0] = countOr(spec(obj), "replicas", 1)
	r.mark(late(obj), flagLate)
	r.mark(find(conditionsOf(st), "ReplicaFailure").is("True"), flagCreation)
	return r, true
}

func reflectDaemonSet(obj *unstructured.Unstructured) (reflected, bool) {
	r := reflected{N: counts(status(obj), daemonSetCounts)}
	r.mark(late(obj), flagLate)
	return r, true
}

func reflectJob(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	cs := conditionsOf(st)
	r := reflected{N: counts(st, jobCounts), T: []int64{seconds(st, "startTime"), seconds(st, "completionTime")}}
	failed := find(cs, "Failed")
	r.mark(find(cs, "Complete").is("True"), flagComplete)
	r.mark(failed.is("True"), flagFailed)
	r.mark(find(cs, "Suspended").is("True"), flagSuspended)
	if failed.is("True") {
		r.C = packConditions([]condition{failed})
	}
	return r, true
}

func reflectCronJob(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	last, good := seconds(st, "lastScheduleTime"), seconds(st, "lastSuccessfulTime")
	return reflected{T: []int64{last, good}}, last != 0 || good != 0
}

func reflectPod(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{P: text(st, "phase")}
	for _, c := range conditionsOf(st) {
		switch c.kind {
		case "PodScheduled", "Initialized", "ContainersReady", "Ready":
			c.hasObserved = false
			r.C = append(r.C, c.pack())
		}
	}
	slices.Sort(r.C)
	return r, r.P != ""
}

func reflectClaim(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{P: text(st, "phase")}
	if size := text(child(st, "capacity"), "storage"); size != "" && len(size) <= maxReason {
		r.L = []string{size}
	}
	return r, r.P != ""
}

func reflectVolume(obj *unstructured.Unstructured) (reflected, bool) {
	r := reflected{P: text(status(obj), "phase")}
	return r, r.P != ""
}

func reflectBudget(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{N: counts(st, budgetCounts), C: packConditions(conditionsOf(st))}
	r.mark(late(obj), flagLate)
	return r, true
}

func reflectAutoscaler(obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	r := reflected{N: counts(st, autoscalerCounts), C: packConditions(conditionsOf(st))}
	if last := seconds(st, "lastScaleTime"); last != 0 {
		r.T = []int64{last}
	}
	return r, true
}

func reflectGeneric(k *kind, obj *unstructured.Unstructured) (reflected, bool) {
	st := status(obj)
	cs := conditionsOf(st)
	r := reflected{C: packConditions(cs), P: cut(digText(st, k.phasePath()), maxReason)}
	if k.counts != nil {
		r.N = counts(st, k.counts)
		r.N[0] = digCount(obj.Object, k.replicas, 1)
	}
	if k.addresses {
		r.L = addressesOf(st)
	}
	_, ok := observedOf(st)
	r.mark(ok, flagObserves)
	r.mark(lateBy(st, cs, obj.GetGeneration()), flagLate)
	return r, ok || len(r.C) > 0 || r.P != "" || k.counts != nil || len(r.L) > 0
}

// addressesOf a status that lists them with their types, as a Gateway's does.
func addressesOf(st map[string]any) []string {
	var out []string
	for _, e := range list(st, "addresses") {
		em, _ := e.(map[string]any)
		if v := text(em, "value"); v != "" {
			out = append(out, orElse(text(em, "type"), "IPAddress")+" "+v)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxAddresses)]
}

func packConditions(cs []condition) []string {
	// Where there is no room for all, what people and tools wait for goes before the others.
	cs = slices.Clone(cs)
	slices.SortFunc(cs, func(a, b condition) int {
		return cmp.Or(-compareBool(customary[a.kind], customary[b.kind]), cmp.Compare(a.kind, b.kind))
	})
	out := make([]string, 0, maxConditions)
	for _, c := range cs[:min(len(cs), maxConditions)] {
		out = append(out, c.pack())
	}
	slices.Sort(out)
	return out
}

func (c condition) pack() string {
	letter := "U"
	switch c.status {
	case "True":
		letter = "T"
	case "False":
		letter = "F"
	}
	if c.hasObserved {
		letter += "*"
	}
	if c.reason == "" {
		return c.kind + "=" + letter
	}
	return c.kind + "=" + letter + ":" + cut(c.reason, maxReason)
}

func unpackCondition(s string) condition {
	kind, rest, _ := strings.Cut(s, "=")
	letter, reason, _ := strings.Cut(rest, ":")
	c := condition{kind: kind, reason: reason, status: "Unknown"}
	letter, c.hasObserved = strings.CutSuffix(letter, "*")
	switch letter {
	case "T":
		c.status = "True"
	case "F":
		c.status = "False"
	}
	return c
}

func unpackConditions(packed []string) []condition {
	out := make([]condition, 0, len(packed))
	for _, s := range packed {
		out = append(out, unpackCondition(s))
	}
	return out
}

// seconds reads a time as Unix seconds; 0 when there is none.
func seconds(m map[string]any, key string) int64 {
	t, err := time.Parse(time.RFC3339, text(m, key))
	if err != nil {
		return 0
	}
	return t.Unix()
}

func timestamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

const newReplicaSetAvailable = "NewReplicaSetAvailable"
