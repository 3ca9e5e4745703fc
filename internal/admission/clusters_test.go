package admission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A stated removal confirms no more than the cluster's content at that time.
func TestOnlyWhatIsThereIsConfirmed(t *testing.T) {
	cluster := func(removal string) *unstructured.Unstructured {
		spec := map[string]any{"accepted": true}
		if mode, confirm, _ := strings.Cut(removal, " "); mode != "" {
			r := map[string]any{"mode": mode}
			if confirm != "" {
				r["confirm"] = confirm
			}
			spec["removal"] = r
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "tokyo", "uid": "u"}, "spec": spec,
		}}
	}
	plan, unknown := "", error(nil)
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Removals: cleanPlanFunc(func(c *v1alpha1.Cluster) (string, error) {
		if c.UID != "u" {
			t.Errorf("asked about %q", c.UID)
		}
		return plan, unknown
	})})})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	}))
	for _, tc := range []struct {
		name, before, now, plan string
		unknown                 bool
		want                    string
	}{
		{"nothing is confirmed", "", "Clean", "p", false, ""},
		{"what is there", "", "Clean p", "p", false, ""},
		{"later", "Clean", "Clean p", "p", false, ""},
		{"something else", "Clean", "Clean q", "p", false, "another plan now; `atoll confirm cluster/tokyo` shows it, and --plan p releases it"},
		{"a confirmation that stands", "Clean p", "Clean p", "less", false, ""},
		{"one of an earlier removal", "", "Clean p", "other", false, "another plan now"},
		{"one that was about another mode", "Orphan p", "Clean p", "other", false, "another plan now"},
		{"taken back", "Clean p", "Clean", "less", false, ""},
		{"the rest is to stay", "Clean p", "Orphan p", "less", false, ""},
		{"nothing is there", "Clean", "Clean p", "", false, "nothing is in the cluster"},
		{"not known yet", "Clean", "Clean p", "p", true, "not known yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if plan, unknown = tc.plan, nil; tc.unknown {
				unknown = errors.New("no such revision")
			}
			a := admission.NewAttributesRecord(cluster(tc.now), cluster(tc.before), schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Cluster"}, "", "tokyo",
				schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: "jane"})
			now, before, err := typedObjects[v1alpha1.Cluster](a)
			if err != nil {
				t.Fatal(err)
			}
			err = p.validateClusterRemoval(t.Context(), a, now, before)
			if err == nil && tc.want != "" || err != nil && (tc.want == "" || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			wantReason(t, err)
		})
	}
}

// The hub records when a removal was requested, whatever is written there, and another removal has
// another time: a kept confirmation is of the earlier one then.
func TestARemovalKnowsWhenItWasAskedFor(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC))
	p := New(Options{Own: func(user.Info) bool { return false }, Clock: clock})
	const first, later = "2030-01-02T03:04:05.000000006Z", "2030-01-02T03:04:06.000000006Z"
	cluster := func(mode, asked string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "tokyo", "uid": "u"}}}
		if mode != "" {
			u.Object["spec"] = map[string]any{"removal": map[string]any{"mode": mode}}
		}
		if asked != "" {
			u.SetAnnotations(map[string]string{atoll.AnnotationRemovalRequested: asked, "other": "stays"})
		}
		return u
	}
	for _, tc := range []struct {
		name        string
		before, now *unstructured.Unstructured
		want        string
	}{
		{"a Cluster of which nothing is asked", nil, cluster("", ""), ""},
		{"made with a removal", nil, cluster("Clean", ""), later},
		{"made with the time of another", nil, cluster("Clean", first), later},
		{"asked for", cluster("", ""), cluster("Clean", ""), later},
		{"asked for with an earlier time", cluster("", ""), cluster("Clean", first), later},
		{"goes on", cluster("Clean", first), cluster("Clean", first), first},
		{"goes on, replaced by a client without the annotation", cluster("Clean", first), cluster("Clean", ""), first},
		{"goes on, under another time", cluster("Clean", first), cluster("Clean", "x"), first},
		{"of another mode", cluster("Orphan", first), cluster("Clean", first), later},
		{"taken back", cluster("Clean", first), cluster("", first), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock.SetTime(time.Date(2030, 1, 2, 3, 4, 6, 6, time.UTC))
			op, old := admission.Create, runtime.Object(nil)
			if tc.before != nil {
				op, old = admission.Update, tc.before
			}
			a := admission.NewAttributesRecord(tc.now, old, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Cluster"}, "", "tokyo",
				schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"}, "", op, nil, false, &user.DefaultInfo{Name: "jane"})
			others := tc.now.GetAnnotations()["other"]
			if err := p.Admit(t.Context(), a, nil); err != nil {
				t.Fatal(err)
			}
			got := tc.now.GetAnnotations()
			if asked, has := got[atoll.AnnotationRemovalRequested]; asked != tc.want || has != (tc.want != "") || got["other"] != others {
				t.Errorf("annotations %v, want %q", got, tc.want)
			}
		})
	}
}
