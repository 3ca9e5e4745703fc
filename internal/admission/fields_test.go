package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// taintedCluster is a Cluster with these taints, in YAML.
func taintedCluster(t *testing.T, taints string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: tokyo}\nspec: {accepted: true, taints: " + taints + "}"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// A taint with the key of a drain that drains nothing is refused.
func TestMalformedDrainsAreRefused(t *testing.T) {
	for taint, want := range map[string]string{
		"{key: atoll.dev/drain, effect: NoExecute}":                          "",
		"{key: atoll.dev/drain, value: RemoveUnreplaced, effect: NoExecute}": "",
		"{key: atoll.dev/drain, value: all, effect: NoExecute}":              `spec.taints[0].value: Unsupported value: "all"`,
		"{key: atoll.dev/drain, effect: NoSchedule}":                         `spec.taints[0].effect: Unsupported value: "NoSchedule"`,
		"{key: drain, value: all, effect: NoSchedule}":                       "",
	} {
		var c v1alpha1.Cluster
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(taintedCluster(t, "["+taint+"]").Object, &c); err != nil {
			t.Fatal(err)
		}
		got := ""
		if errs := checkDrainTaints(c.Spec.Taints, nil); len(errs) > 0 {
			got = errs[0].Error()
		}
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", taint, got, want)
		}
		if errs := checkDrainTaints(c.Spec.Taints, &c); len(errs) > 0 {
			t.Errorf("%s was there before the edit: %v", taint, errs)
		}
	}
}

// A field of a Cluster that cannot be honoured is refused with its path and the reason.
func TestFieldsOfAClusterAreChecked(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }})
	p.authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	for _, tc := range []struct{ spec, want string }{
		{"{capacity: {replicas: 0, objects: 10, resources: {cpu: '0.5', memory: 1Gi, nvidia.com/gpu: 4}}}", ""},
		{"{capacity: {replicas: -1}}", "spec.capacity.replicas: Invalid value: -1: must not be negative"},
		{"{capacity: {objects: -5}}", "spec.capacity.objects: Invalid value: -5: must not be negative"},
		{"{capacity: {resources: {memory: -1Gi}}}", "spec.capacity.resources[memory]: Invalid value: \"-1Gi\": must not be negative"},
		{"{capacity: {resources: {gpu: 4}}}", "spec.capacity.resources[gpu]: Invalid value: \"gpu\": is no resource that pods request"},
		{"{capacity: {resources: {limits.memory: 1Gi}}}", "use memory, which bounds what is requested"},
		{"{timeZone: Europe/Oslo}", ""},
		{"{timeZone: Europe/Nowhere}", "spec.timeZone: Invalid value: \"Europe/Nowhere\": must be a name of the IANA time zone database"},
		{"{zone: a, zones: [a, b]}", "spec.zones: Invalid value: [\"a\",\"b\"]: zone is \"a\""},
	} {
		u := taintedCluster(t, "[]")
		var spec map[string]any
		if err := yaml.Unmarshal([]byte(tc.spec), &spec); err != nil {
			t.Fatal(err)
		}
		u.Object["spec"] = spec
		for op, old := range map[admission.Operation]runtime.Object{admission.Create: nil, admission.Update: taintedCluster(t, "[]")} {
			gvk := v1alpha1.GroupVersion.WithKind("Cluster")
			a := admission.NewAttributesRecord(u, old, gvk, "", "tokyo", v1alpha1.GroupVersion.WithResource("clusters"), "", op, nil, false, &user.DefaultInfo{Name: "jane"})
			err := p.Validate(t.Context(), a, nil)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %s: %v, want %q", op, tc.spec, err, tc.want)
			}
			wantReason(t, err)
		}
	}
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
		c, err := convertTo[v1alpha1.Cluster](now)
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec.Taints
	}
	first := taintedCluster(t, "[{key: down, effect: NoExecute}, {key: full, effect: NoSchedule}, {key: old, effect: NoExecute, timeAdded: '2020-01-01T00:00:00Z'}]")
	got := admit(first, nil)
	if got[0].TimeAdded == nil || !got[0].TimeAdded.Time.Equal(clock.Now()) || got[1].TimeAdded != nil || got[2].TimeAdded.Year() != 2020 {
		t.Errorf("timeAdded at create: %+v", got)
	}
	began := clock.Now()
	clock.SetTime(began.Add(time.Hour))
	second := admit(taintedCluster(t, "[{key: down, effect: NoExecute}, {key: new, effect: NoExecute}]"), first)
	if !second[0].TimeAdded.Time.Equal(began) || !second[1].TimeAdded.Time.Equal(clock.Now()) {
		t.Errorf("timeAdded after an edit that left it out: %+v", second)
	}
	third := admit(taintedCluster(t, "[{key: down, value: other, effect: NoExecute}]"), first)
	if !third[0].TimeAdded.Time.Equal(clock.Now()) {
		t.Errorf("timeAdded of another taint: %+v", third)
	}
}
