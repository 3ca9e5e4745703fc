package kinds_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/polymorphichelpers"

	"atoll.dev/atoll/internal/kinds"
)

// isRolledOut returns the answer of kubectl rollout status.
func isRolledOut(t *testing.T, obj *unstructured.Unstructured) bool {
	t.Helper()
	stamped := obj.DeepCopy()
	if st, ok := stamped.Object["status"].(map[string]any); ok {
		kinds.FillTimePlaceholders(st, time.Unix(0, 0))
	}
	viewer, err := polymorphichelpers.StatusViewerFor(obj.GroupVersionKind().GroupKind())
	if err != nil {
		t.Fatal(err)
	}
	_, done, err := viewer.Status(stamped, 0)
	if err != nil {
		t.Logf("rollout status: %v", err)
	}
	return done
}

func TestRolloutStatusOfStatefulAndDaemonSets(t *testing.T) {
	const (
		sts = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, generation: 3}\nspec: {replicas: 2, updateStrategy: {type: RollingUpdate}}\n"
		ds  = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 3}\nspec: {updateStrategy: {type: RollingUpdate}}\n"
	)
	for _, c := range []struct {
		name, template string
		members        []string
		observed       int64
		want           bool
	}{
		{"statefulset done", sts, []string{sts + "status: {observedGeneration: 3, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: a}"}, 3, true},
		{"statefulset half updated", sts, []string{sts + "status: {observedGeneration: 3, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 1, currentReplicas: 1, currentRevision: a, updateRevision: b}"}, 3, false},
		{"statefulset not applied everywhere", sts, []string{sts + "status: {observedGeneration: 3, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: a}"}, 2, false},
		{"daemonset done", ds, []string{ds + "status: {observedGeneration: 3, desiredNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1}"}, 3, true},
		{"daemonset waiting", ds, []string{ds + "status: {observedGeneration: 3, desiredNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}", ds + "status: {observedGeneration: 3}"}, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rows []kinds.RowItem
			for i, m := range c.members {
				rows = append(rows, reportRow(string(rune('a'+i)), parseObject(t, m)))
			}
			tpl := parseObject(t, c.template)
			if st, ok := kinds.AggregateStatus(tpl, false, rows, c.observed, 0); ok {
				tpl.Object["status"] = st
			}
			if got := isRolledOut(t, tpl); got != c.want {
				t.Errorf("rollout status is %v, want %v: %s", got, c.want, asJSON(tpl.Object))
			}
		})
	}
}
