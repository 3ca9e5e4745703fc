package admission

import (
	"context"
	"fmt"
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
)

// settingsOf returns HubSettings with a freeze of "REASON|BY|SINCE|UNTIL"; empty: of none.
func settingsOf(freeze string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "HubSettings", "metadata": map[string]any{"name": "hub"}, "spec": map[string]any{}}}
	if freeze == "" {
		return u
	}
	value := map[string]any{}
	for i, f := range strings.Split(freeze, "|") {
		if f != "" {
			value[[]string{"reason", "by", "since", "until"}[i]] = f
		}
	}
	_ = unstructured.SetNestedMap(u.Object, value, "spec", "freeze")
	return u
}

// newFreezePlugin returns a plugin at 13:00. Alice has the verb freeze on the HubSettings, and the verb exempt on the Bundle web.
func newFreezePlugin() *AdmissionPlugin {
	p := New(Options{Own: func(user.Info) bool { return false }, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC))})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		freezes := a.GetVerb() == "freeze" && a.GetResource() == "hubsettings" && a.GetName() == "hub"
		exempts := a.GetVerb() == "exempt" && a.GetResource() == "bundles" && a.GetNamespace() == "shop" && a.GetName() == "web"
		if a.GetUser().GetName() == "alice" && a.GetAPIGroup() == "atoll.dev" && (freezes || exempts) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	return p
}

// Only users with the verb freeze set, edit or lift a freeze, whatever else they may do with the HubSettings. It has the user and the
// time of the request.
func TestFreezes(t *testing.T) {
	const bobs, now = "outage|bob|2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"
	withOther := settingsOf(bobs)
	_ = unstructured.SetNestedField(withOther.Object, "24h", "spec", "undoWindow")
	endedWithOther := settingsOf(bobs + "|2026-11-22T12:30:00Z")
	_ = unstructured.SetNestedField(endedWithOther.Object, "24h", "spec", "undoWindow")
	for name, c := range map[string]struct {
		user        string
		before, now *unstructured.Unstructured
		want        string // user, since
		refused     string
	}{
		"a freeze":                     {"alice", settingsOf(""), settingsOf("outage"), "alice " + now, ""},
		"with the first settings":      {"alice", nil, settingsOf("outage"), "alice " + now, ""},
		"in the name of another":       {"alice", settingsOf(""), settingsOf("outage|root|2020-01-01T00:00:00Z"), "alice " + now, ""},
		"an edit":                      {"alice", settingsOf(bobs), settingsOf("outage over|bob|2026-11-22T12:00:00Z"), "alice 2026-11-22T12:00:00Z", ""},
		"a later end":                  {"alice", settingsOf(bobs), settingsOf(bobs + "|2026-11-22T14:00:00Z"), "alice 2026-11-22T12:00:00Z", ""},
		"after one that has ended":     {"alice", settingsOf(bobs + "|2026-11-22T12:30:00Z"), settingsOf("again|bob|2026-11-22T12:00:00Z"), "alice " + now, ""},
		"another field after its end":  {"mallory", settingsOf(bobs + "|2026-11-22T12:30:00Z"), endedWithOther, "bob 2026-11-22T12:00:00Z", ""},
		"its end":                      {"alice", settingsOf(bobs), settingsOf(""), " ", ""},
		"as it was":                    {"mallory", settingsOf(bobs), withOther, "bob 2026-11-22T12:00:00Z", ""},
		"without the right":            {"mallory", settingsOf(""), settingsOf("outage|alice"), "mallory " + now, "the verb freeze on hubsettings.atoll.dev is needed"},
		"lifted without the right":     {"mallory", settingsOf(bobs), settingsOf(""), " ", "the verb freeze"},
		"shortened without the right":  {"mallory", settingsOf(bobs), settingsOf(bobs + "|2026-11-22T13:00:01Z"), "mallory 2026-11-22T12:00:00Z", "the verb freeze"},
		"the first, without the right": {"mallory", nil, settingsOf("outage"), "mallory " + now, "the verb freeze"},
		"an end that is over":          {"alice", settingsOf(""), settingsOf("outage|||2026-11-22T13:00:00Z"), "alice " + now, "spec.freeze.until: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			p, operation, before := newFreezePlugin(), admission.Create, runtime.Object(nil)
			if c.before != nil {
				operation, before = admission.Update, c.before
			}
			a := admission.NewAttributesRecord(c.now, before, v1alpha1.GroupVersion.WithKind("HubSettings"), "", "hub", v1alpha1.GroupVersion.WithResource("hubsettings"), "", operation, nil, false, &user.DefaultInfo{Name: c.user})
			if err := p.Admit(context.Background(), a, nil); err != nil {
				t.Fatal(err)
			}
			by, _, _ := unstructured.NestedString(c.now.Object, "spec", "freeze", "by")
			since, _, _ := unstructured.NestedString(c.now.Object, "spec", "freeze", "since")
			if got := by + " " + since; got != c.want {
				t.Errorf("frozen by %q, want %q", got, c.want)
			}
			if err := fmt.Sprint(p.validateWrite(context.Background(), a, nil)); c.refused == "" && err != "<nil>" || !strings.Contains(err, c.refused) {
				t.Errorf("refused with %s, want %q", err, c.refused)
			}
		})
	}
}

// Deleting the HubSettings lifts a freeze, too.
func TestSettingsWithAFreezeAreDeletedWithTheRight(t *testing.T) {
	for _, c := range []struct {
		user, freeze string
		refused      bool
	}{{"alice", "outage", false}, {"mallory", "outage", true}, {"mallory", "", false}} {
		a := admission.NewAttributesRecord(nil, settingsOf(c.freeze), v1alpha1.GroupVersion.WithKind("HubSettings"), "", "hub", v1alpha1.GroupVersion.WithResource("hubsettings"), "", admission.Delete, nil, false, &user.DefaultInfo{Name: c.user})
		if err := newFreezePlugin().validateDelete(context.Background(), a); (err != nil) != c.refused {
			t.Errorf("%s deletes settings with freeze %q: %v", c.user, c.freeze, err)
		}
	}
}

// An exemption needs the verb exempt on the Bundle, and has the user and the time of the request. Its withdrawal needs no such verb.
func TestExemptionsFromAFreeze(t *testing.T) {
	of := func(value map[string]any) *unstructured.Unstructured {
		u := bundleOf(v1alpha1.SourcePropagationPolicy)
		if value != nil {
			_ = unstructured.SetNestedMap(u.Object, value, "spec", "freezeExemption")
		}
		return u
	}
	const now = "2026-11-22T13:00:00Z"
	bobs := map[string]any{"message": "x", "by": "bob", "at": "2026-11-22T12:00:00Z"}
	for name, c := range map[string]struct {
		user        string
		before, now *unstructured.Unstructured
		want        string
		refused     bool
	}{
		"an exemption":           {"alice", of(nil), of(map[string]any{"message": "security fix"}), "alice " + now, false},
		"in the name of another": {"alice", of(nil), of(map[string]any{"message": "x", "by": "root", "at": "2099-01-01T00:00:00Z"}), "alice " + now, false},
		"a later one":            {"alice", of(bobs), of(map[string]any{"message": "x", "by": "bob", "at": "2099-01-01T00:00:00Z"}), "alice " + now, false},
		"without the right":      {"mallory", of(nil), of(map[string]any{"message": "x", "by": "alice"}), "mallory " + now, true},
		"a withdrawal":           {"mallory", of(bobs), of(nil), " ", false},
	} {
		a := admission.NewAttributesRecord(c.now, c.before, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, "shop", "web",
			schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: c.user})
		p := newFreezePlugin()
		p.stampRolloutAuthor(a)
		by, _, _ := unstructured.NestedString(c.now.Object, "spec", "freezeExemption", "by")
		at, _, _ := unstructured.NestedString(c.now.Object, "spec", "freezeExemption", "at")
		if got := by + " " + at; got != c.want {
			t.Errorf("%s: exempted by %q, want %q", name, got, c.want)
		}
		if err := p.validateHubWrittenKinds(context.Background(), a); (err != nil) != c.refused {
			t.Errorf("%s: refused with %v, want %t", name, err, c.refused)
		}
	}
}
