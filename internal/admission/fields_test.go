package admission

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// tainted is a Cluster with these taints, in YAML.
func tainted(t *testing.T, taints string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: tokyo}\nspec: {accepted: true, taints: " + taints + "}"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// The hub notes when a NoExecute taint was added, once: tolerationSeconds count from
// there, whatever else is edited.
func TestTimeAddedIsSetOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	p := New(Options{Clock: clock})
	admit := func(now, old *unstructured.Unstructured) []v1alpha1.Taint {
		t.Helper()
		op, before := admission.Create, runtime.Object(nil)
		if old != nil {
			op, before = admission.Update, old
		}
		gvk := v1alpha1.GroupVersion.WithKind("Cluster")
		a := admission.NewAttributesRecord(now, before, gvk, "", "tokyo", v1alpha1.GroupVersion.WithResource("clusters"), "", op, nil, false, &user.DefaultInfo{Name: "jane"})
		if err := p.Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		c, err := as[v1alpha1.Cluster](now)
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec.Taints
	}
	first := tainted(t, "[{key: down, effect: NoExecute}, {key: full, effect: NoSchedule}, {key: old, effect: NoExecute, timeAdded: '2020-01-01T00:00:00Z'}]")
	got := admit(first, nil)
	if got[0].TimeAdded == nil || !got[0].TimeAdded.Time.Equal(clock.Now()) || got[1].TimeAdded != nil || got[2].TimeAdded.Year() != 2020 {
		t.Errorf("timeAdded at create: %+v", got)
	}
	began := clock.Now()
	clock.SetTime(began.Add(time.Hour))
	second := admit(tainted(t, "[{key: down, effect: NoExecute}, {key: new, effect: NoExecute}]"), first)
	if !second[0].TimeAdded.Time.Equal(began) || !second[1].TimeAdded.Time.Equal(clock.Now()) {
		t.Errorf("timeAdded after an edit that left it out: %+v", second)
	}
	third := admit(tainted(t, "[{key: down, value: other, effect: NoExecute}]"), first)
	if !third[0].TimeAdded.Time.Equal(clock.Now()) {
		t.Errorf("timeAdded of another taint: %+v", third)
	}
}
