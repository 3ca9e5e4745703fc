package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// A number that the typed object could not hold is refused and not cut.
func TestBoundsOfARolloutFitTheirType(t *testing.T) {
	policy := func(unavailable, concurrency int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rollout": map[string]any{
			"maxUnavailable": unavailable, "stages": []any{map[string]any{"name": "a", "maxConcurrency": concurrency}},
		}}}}
	}
	auto := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rollout": map[string]any{
		"autoStages": []any{int64(1), "10%", int64(1<<32 + 3)}, "autoStageOptions": map[string]any{"maxFailures": int64(1)},
	}}}}
	options := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rollout": map[string]any{"autoStageOptions": map[string]any{"maxConcurrency": int64(1<<32 + 4)}}}}}
	for want, u := range map[string]*unstructured.Unstructured{
		"spec.rollout.autoStages[2]: Invalid value: 4294967299": auto, "spec.rollout.autoStageOptions.maxConcurrency: Invalid value: 4294967300": options,
		"<nil>": policy(1, 2), "spec.rollout.maxUnavailable: Invalid value: 4294967297": policy(1<<32+1, 2), "spec.rollout.stages[0].maxConcurrency: Invalid value: 4294967298": policy(1, 1<<32+2),
	} {
		if got := fmt.Sprint(checkRolloutFitsInt32(u, "spec", "rollout").ToAggregate()); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The hub writes the user and the time of a pause and of a resume. A user that edits the pause of another becomes its
// author, and a pause is no way to write anything else.
func TestTheAuthorOfAPause(t *testing.T) {
	const began, now = "2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"
	pause := func(message, by, since string) map[string]any {
		out := map[string]any{"reason": "Requested", "message": message}
		if by != "" {
			out["by"], out["since"] = by, since
		}
		return out
	}
	of := func(name string, value map[string]any) *unstructured.Unstructured {
		u := bundleOf(v1alpha1.SourcePropagationPolicy)
		if value != nil {
			_ = unstructured.SetNestedMap(u.Object, value, "spec", name)
		}
		return u
	}
	withGroup := of("pause", pause("slow", "", ""))
	_ = unstructured.SetNestedField(withGroup.Object, "x", "spec", "group")
	for name, c := range map[string]struct {
		before, now *unstructured.Unstructured
		field       string
		by, at      string
		refused     bool
	}{
		"a pause":                           {of("pause", nil), of("pause", pause("slow", "", "")), "pause", "alice", now, false},
		"in the name of another":            {of("pause", nil), of("pause", pause("slow", "root", began)), "pause", "alice", now, false},
		"an edited message":                 {of("pause", pause("slow", "bob", began)), of("pause", pause("fast", "bob", began)), "pause", "alice", began, false},
		"an edited author":                  {of("pause", pause("slow", "bob", began)), of("pause", pause("slow", "root", began)), "pause", "alice", began, false},
		"the pause as it was":               {of("pause", pause("slow", "bob", began)), of("pause", pause("slow", "bob", began)), "pause", "bob", began, false},
		"the end of a pause":                {of("pause", pause("slow", "bob", began)), of("pause", nil), "pause", "", "", false},
		"a resume":                          {of("resume", nil), of("resume", map[string]any{"at": "2099-01-01T00:00:00Z"}), "resume", "alice", now, false},
		"a pause with something besides it": {of("pause", nil), withGroup, "pause", "alice", now, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)
			p := New(Options{Own: func(user.Info) bool { return false }, Clock: clocktesting.NewFakePassiveClock(clock)})
			a := admission.NewAttributesRecord(c.now, c.before, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, "shop", "web",
				schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: "alice"})
			p.stampRolloutAuthor(a)
			by, _, _ := unstructured.NestedString(c.now.Object, "spec", c.field, "by")
			at, _, _ := unstructured.NestedString(c.now.Object, "spec", c.field, map[string]string{"pause": "since", "resume": "at"}[c.field])
			if by != c.by || at != c.at {
				t.Errorf("by %q at %q, want %q at %q", by, at, c.by, c.at)
			}
			if err := p.validateHubWrittenKinds(context.Background(), a); (err != nil) != c.refused {
				t.Errorf("refused with %v, want %t", err, c.refused)
			}
		})
	}
}
