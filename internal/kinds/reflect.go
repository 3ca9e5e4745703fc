package kinds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/phrase"
)

// reflectedStatus is the compact form of a status in rows. Each kind gives the fields their
// meaning. Absent fields are zero.
type reflectedStatus struct {
	// N holds counts in the order that the kind's counts variable lists.
	N []int64 `json:"n,omitempty"`
	// F holds flags, one letter each.
	F string `json:"f,omitempty"`
	// T holds times in Unix seconds, 0 for none.
	T []int64 `json:"t,omitempty"`
	// P is the phase.
	P string `json:"p,omitempty"`
	// L holds addresses, quantities, names or other texts.
	L []string `json:"l,omitempty"`
	// C holds conditions: "Type=T:Reason", status T, F or U; "Type=T*:Reason" when
	// the condition has an observedGeneration of its own.
	C []string `json:"c,omitempty"`
	// A holds the reports of gateways about objects attached to them.
	A []parentStatus `json:"a,omitempty"`
}

// Flags of reflectedStatus.F.
const (
	flagOutdated  = "l" // the member's controller has not observed the latest generation
	flagAvailable = "a" // Deployment: condition Available
	flagDone      = "d" // Deployment: rollout complete; StatefulSet: one revision
	flagDeadline  = "x" // Deployment: progress deadline exceeded
	flagPaused    = "p" // Deployment: paused
	flagCreation  = "e" // pods cannot be created
	flagComplete  = "c" // Job: complete
	flagFailed    = "f" // Job: failed
	flagSuspended = "s" // Job: suspended
	flagObserves  = "o" // other kinds: status has observedGeneration
	flagReady     = "r" // other kinds: the boolean at readyPath is true
	flagNotReady  = "n" // other kinds: it is false
)

// Counts by kind, in the order of reflectedStatus.N. The first count of replicated kinds is the
// desired number.
var (
	deploymentCounts  = []string{"", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"}
	statefulSetCounts = []string{"", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "currentReplicas"}
	replicaSetCounts  = []string{"", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"}
	daemonSetCounts   = []string{"desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable", "numberMisscheduled"}
	jobCounts         = []string{"active", "ready", "succeeded", "failed"}
	budgetCounts      = []string{"disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}
	autoscalerCounts  = []string{"currentReplicas", "desiredReplicas"}
)

// Places of further counts of a Deployment, and of the first one of a ReplicaSet. They are behind those of
// assumeHealthyStatus.
const (
	terminatingAt = 6
	unavailableAt = 7
)

const (
	maxConditions = 8
	maxReason     = 48
	maxAddresses  = 16
	maxActive     = 16 // Jobs of a CronJob that one cluster reports
	maxObjectName = 253
)

// ReflectStatus returns what AggregateStatus needs of an object's status, as compact JSON of about 64
// bytes; nil where there is nothing to report. Equal statuses give equal bytes.
func ReflectStatus(obj *unstructured.Unstructured) json.RawMessage {
	st := statusOf(obj)
	if len(st) == 0 {
		return nil
	}
	k := traitsOf(obj)
	var r reflectedStatus
	ok := false
	switch {
	case k.reflect != nil:
		r, ok = k.reflect(obj)
	case k.usesGenericStatus:
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
		panic(fmt.Sprintf("kinds: %T is made of plain values: %v", r, err))
	}
	return b
}

func (r reflectedStatus) countAt(i int) int64 {
	if i < len(r.N) {
		return r.N[i]
	}
	return 0
}

func (r reflectedStatus) timeAt(i int) int64 {
	if i < len(r.T) {
		return r.T[i]
	}
	return 0
}

func (r reflectedStatus) hasFlag(flag string) bool { return strings.Contains(r.F, flag) }

func (r *reflectedStatus) setFlag(when bool, flag string) {
	if when {
		r.F += flag
	}
}

func readCounts(st map[string]any, names []string) []int64 {
	out := make([]int64, len(names))
	for i, name := range names {
		if name != "" {
			out[i] = countField(st, name)
		}
	}
	return out
}

func reflectDeployment(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{N: append(readCounts(st, deploymentCounts), 0, countField(st, "terminatingReplicas"), countField(st, "unavailableReplicas"))}
	r.N[0] = countFieldOr(specOf(obj), "replicas", 1)
	cs := conditionsOf(st)
	progressing := findCondition(cs, "Progressing")
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	r.setFlag(findCondition(cs, "Available").hasStatus("True"), flagAvailable)
	r.setFlag(progressing.hasStatus("True") && progressing.reason == newReplicaSetAvailable, flagDone)
	r.setFlag(progressing.hasStatus("False") && progressing.reason == progressDeadlineExceeded, flagDeadline)
	r.setFlag(boolField(specOf(obj), "paused"), flagPaused)
	r.setFlag(findCondition(cs, "ReplicaFailure").hasStatus("True"), flagCreation)
	return r, true
}

func reflectStatefulSet(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{N: readCounts(st, statefulSetCounts)}
	r.N[0] = countFieldOr(specOf(obj), "replicas", 1)
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	r.setFlag(stringField(st, "currentRevision") == stringField(st, "updateRevision"), flagDone)
	return r, true
}

func reflectReplicaSet(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{N: append(readCounts(st, replicaSetCounts), 0, countField(st, "terminatingReplicas"))}
	r.N[0] = countFieldOr(specOf(obj), "replicas", 1)
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	r.setFlag(findCondition(conditionsOf(st), "ReplicaFailure").hasStatus("True"), flagCreation)
	return r, true
}

func reflectDaemonSet(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	r := reflectedStatus{N: readCounts(statusOf(obj), daemonSetCounts)}
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	return r, true
}

func reflectJob(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	cs := conditionsOf(st)
	r := reflectedStatus{N: readCounts(st, jobCounts), T: []int64{unixSecondsOf(st, "startTime"), unixSecondsOf(st, "completionTime")}, L: reflectIndexLists(st)}
	failed := findCondition(cs, "Failed")
	r.setFlag(findCondition(cs, "Complete").hasStatus("True"), flagComplete)
	r.setFlag(failed.hasStatus("True"), flagFailed)
	r.setFlag(findCondition(cs, "Suspended").hasStatus("True"), flagSuspended)
	if failed.hasStatus("True") {
		r.C = packConditions([]condition{failed})
	}
	return r, true
}

func reflectCronJob(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	last, good := unixSecondsOf(st, "lastScheduleTime"), unixSecondsOf(st, "lastSuccessfulTime")
	r := reflectedStatus{T: []int64{last, good}}
	for _, e := range listField(st, "active") {
		m, _ := e.(map[string]any)
		if name := stringField(m, "name"); name != "" && len(name) <= maxObjectName {
			r.L = append(r.L, name)
		}
	}
	slices.Sort(r.L)
	r.L = r.L[:min(len(r.L), maxActive)]
	return r, last != 0 || good != 0 || len(r.L) > 0
}

func reflectPod(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{P: stringField(st, "phase")}
	for _, c := range conditionsOf(st) {
		switch c.conditionType {
		case "PodScheduled", "Initialized", "ContainersReady", "Ready":
			c.hasObserved = false
			r.C = append(r.C, c.encode())
		}
	}
	slices.Sort(r.C)
	return r, r.P != ""
}

func reflectVolumeClaim(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{P: stringField(st, "phase")}
	if size := stringField(nestedMap(st, "capacity"), "storage"); size != "" && len(size) <= maxReason {
		r.L = []string{size}
	}
	return r, r.P != ""
}

func reflectPersistentVolume(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	r := reflectedStatus{P: stringField(statusOf(obj), "phase")}
	return r, r.P != ""
}

func reflectDisruptionBudget(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{N: readCounts(st, budgetCounts), C: packConditions(conditionsOf(st))}
	r.setFlag(observedGenerationLags(obj), flagOutdated)
	return r, true
}

func reflectAutoscaler(obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	r := reflectedStatus{N: readCounts(st, autoscalerCounts), C: packConditions(autoscalerConditions(obj))}
	if last := unixSecondsOf(st, "lastScaleTime"); last != 0 {
		r.T = []int64{last}
	}
	return r, true
}

func reflectGeneric(k *kindTraits, obj *unstructured.Unstructured) (reflectedStatus, bool) {
	st := statusOf(obj)
	cs := conditionsOf(st)
	r := reflectedStatus{C: packConditions(cs), P: phrase.CutText(stringAt(st, k.statusPhasePath()), maxReason)}
	if k.countFields != nil {
		r.N = readCounts(st, k.countFields)
		r.N[0] = countAt(obj.Object, k.replicasPath, 1)
	}
	hasSums := false
	for _, at := range k.sumFields {
		n := countAt(st, at, 0)
		r.N, hasSums = append(r.N, n), hasSums || n != 0
	}
	if k.hasAddressList {
		r.L = typedStatusAddresses(st)
	}
	_, ok := observedGenerationOf(st)
	r.setFlag(ok, flagObserves)
	r.setFlag(statusIsOutdated(st, cs, obj.GetGeneration()), flagOutdated)
	if ready, stated := valueAt(st, k.readyPath).(bool); stated {
		r.setFlag(ready, flagReady)
		r.setFlag(!ready, flagNotReady)
	}
	return r, ok || hasSums || r.F != "" || len(r.C) > 0 || r.P != "" || k.countFields != nil || len(r.L) > 0
}

// typedStatusAddresses returns the addresses of a status that lists them with their types, as for a
// Gateway.
func typedStatusAddresses(st map[string]any) []string {
	var out []string
	for _, e := range listField(st, "addresses") {
		em, _ := e.(map[string]any)
		if v := stringField(em, "value"); v != "" {
			out = append(out, orElse(stringField(em, "type"), "IPAddress")+" "+v)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxAddresses)]
}

func packConditions(cs []condition) []string {
	// The customary conditions go first, in case there is no space for all.
	cs = slices.Clone(cs)
	slices.SortFunc(cs, func(a, b condition) int {
		return cmp.Or(-compareBool(customaryConditions[a.conditionType], customaryConditions[b.conditionType]), cmp.Compare(a.conditionType, b.conditionType))
	})
	out := make([]string, 0, maxConditions)
	for _, c := range cs[:min(len(cs), maxConditions)] {
		out = append(out, c.encode())
	}
	slices.Sort(out)
	return out
}

func (c condition) encode() string {
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
		return c.conditionType + "=" + letter
	}
	return c.conditionType + "=" + letter + ":" + phrase.CutText(c.reason, maxReason)
}

func unpackCondition(s string) condition {
	kind, rest, _ := strings.Cut(s, "=")
	letter, reason, _ := strings.Cut(rest, ":")
	c := condition{conditionType: kind, reason: reason, status: "Unknown"}
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

// unixSecondsOf reads a time as Unix seconds; 0 when there is none.
func unixSecondsOf(m map[string]any, key string) int64 {
	t, err := time.Parse(time.RFC3339, stringField(m, key))
	if err != nil {
		return 0
	}
	return t.Unix()
}

func formatTimestamp(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

const newReplicaSetAvailable = "NewReplicaSetAvailable"
