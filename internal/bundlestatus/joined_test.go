package bundlestatus

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/state"
)

// joining is a Bundle in so many clusters whose template's status a script joins, and how often
// that was asked.
type joining struct {
	*memory
	*BundleReconciler
	t     *testing.T
	asked int
	// health that clusters report.
	health atoll.Health
}

func newJoining(t *testing.T, clusters int, source string) *joining {
	t.Helper()
	j := &joining{memory: newMemory(), t: t, health: atoll.Healthy}
	for i := range clusters {
		j.addCluster(fmt.Sprintf("c%02d", i))
	}
	j.apply()
	j.setInterpreter(source)
	j.BundleReconciler = New(j.newConfig())
	j.started = time.Now()
	j.aggregate = func(known script.Interpreters, o *unstructured.Unstructured, divided bool, rows []kinds.RowItem, observed, notAfter int64) (map[string]any, bool, error) {
		j.asked++
		return known.AggregateStatus(o, divided, rows, observed, notAfter)
	}
	for i := range clusters {
		j.reportReady(i, 1)
	}
	return j
}

// setInterpreter the hub how statuses are joined: a Revision with that interpreter, which all rows have.
func (j *joining) setInterpreter(source string) {
	o := &v1alpha1.ResourceInterpreter{Spec: v1alpha1.ResourceInterpreterSpec{
		Target: v1alpha1.InterpreterTarget{APIVersion: "apps/v1", Kinds: []string{"Deployment"}}, Aggregate: &v1alpha1.InterpreterRule{Lua: source},
	}}
	o.Name = "web"
	t, _ := memTemplates{j.memory}.Get(webKey)
	content := webContent("h1")
	content.Items[0].APIVersion = "apps/v1"
	content.Interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{o}).InterpretersForContent([]schema.GroupVersionKind{t.GroupVersionKind()})
	rev := j.cutRevision("b", content)
	for _, c := range (memClusters{j.memory}).List() {
		j.setRow("b", c.Name, func(r *state.Row) { r.Spec.Revision = rev })
	}
}

// reportReady is how many replicas a cluster reports.
func (j *joining) reportReady(cluster, n int) {
	j.setRow("b", fmt.Sprintf("c%02d", cluster), func(r *state.Row) {
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, Applied: true, State: atoll.RowReady, Total: 1,
			Items: []atoll.ItemStatus{{Key: webKey, Health: j.health, ReflectedStatus: json.RawMessage(fmt.Sprintf(`{"s":{"ready":%d}}`, n))}}}
	})
}

// reconcileTimes so many times; it tells how often the script was asked.
func (j *joining) reconcileTimes(times int) int {
	j.t.Helper()
	before := j.asked
	for range times {
		if _, err := j.reconcileBundle(j.t.Context(), "b"); err != nil {
			j.t.Fatal(err)
		}
	}
	return j.asked - before
}

const sums = `function AggregateStatus(obj, items)
	if obj.status ~= nil or obj.metadata.managedFields ~= nil or obj.metadata.resourceVersion ~= nil then error("it sees what is not stated") end
	local n = 0
	for _, i in ipairs(items) do n = n + i.status.ready end
	obj.status = {ready = n, phase = "of " .. n}
	return obj
end`

// A script is asked once about what clusters say, whatever their number: what it answered is
// written, which changes the template's version, and is no new question.
func TestAScriptIsAskedOnceAboutTheSame(t *testing.T) {
	for _, clusters := range []int{2, 8, 9, 40} {
		j := newJoining(t, clusters, sums)
		if n := j.reconcileTimes(1); n != 1 || j.webStatus()["ready"] != int64(clusters) {
			t.Fatalf("%d clusters: asked %d times, joined %v", clusters, n, j.webStatus())
		}
		if n := j.reconcileTimes(5); n != 0 {
			t.Errorf("%d clusters: asked %d times in looks without a change", clusters, n)
		}
		j.reportReady(1, 5)
		if n := j.reconcileTimes(3); n != 1 || j.webStatus()["ready"] != int64(clusters+4) {
			t.Errorf("%d clusters: asked %d times about a change, joined %v", clusters, n, j.webStatus())
		}
		j.editTemplate(webKey, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) })
		if n := j.reconcileTimes(3); n != 1 {
			t.Errorf("%d clusters: asked %d times about an edit", clusters, n)
		}
		j.setInterpreter(sums + "\n")
		if n := j.reconcileTimes(3); n != 1 {
			t.Errorf("%d clusters: another script was asked %d times", clusters, n)
		}
		if n := j.countWrites("template"); n != 2 {
			t.Errorf("%d clusters: %d writes", clusters, n)
		}
	}
}

// Another writer's change of the status is corrected.
func TestAJoinedStatusIsSetRight(t *testing.T) {
	j := newJoining(t, 9, sums)
	j.reconcileTimes(2)
	j.editTemplate(webKey, func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"phase": "gone"} })
	if n := j.reconcileTimes(3); n != 1 || j.webStatus()["ready"] != int64(9) {
		t.Errorf("asked %d times, and the status is %v", n, j.webStatus())
	}
}

// A script that fails is not asked the same again, and one whose answer waits for its turn
// neither.
func TestAScriptIsNotAskedAgainInVain(t *testing.T) {
	j := newJoining(t, 9, `function AggregateStatus(obj, items) error("no") end`)
	if n := j.reconcileTimes(4); n != 1 {
		t.Errorf("a script that fails was asked %d times", n)
	}
	why, since, failed := j.JoinFailure("b", "u1")
	if !failed || since.IsZero() || !strings.Contains(why, "ResourceInterpreter web: spec.aggregate.lua, line 1") {
		t.Errorf("it is said that it fails: %t, %q", failed, why)
	}
	j.reportReady(1, 5)
	j.reconcileTimes(1)
	if _, still, _ := j.JoinFailure("b", "u1"); still != since {
		t.Error("the time since it fails began again")
	}
	j.setInterpreter(sums)
	j.reconcileTimes(1)
	if why, _, failed := j.JoinFailure("b", "u1"); failed {
		t.Errorf("it is said to fail when it does not: %s", why)
	}
	j = newJoining(t, 9, `function AggregateStatus(obj, items)
	local n = 0
	for _, i in ipairs(items) do n = n + i.status.ready end
	obj.status = {ready = n}
	return obj
end`)
	j.reconcileTimes(1)
	j.health = atoll.Progressing
	for n := range 3 { // no news, and so not due
		j.reportReady(1, 2+n)
		if n := j.reconcileTimes(4); n != 1 {
			t.Errorf("a script whose answer waits was asked %d times", n)
		}
	}
	if got := j.webStatus()["ready"]; got == int64(12) {
		t.Error("the answers did not wait, so that this shows nothing")
	}
}
