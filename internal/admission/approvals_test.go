package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// approvalOf returns an approval. A user and a time are as a writer claims them.
func approvalOf(stage, revision, by, at string) map[string]any {
	out := map[string]any{"stage": stage, "revision": revision}
	if by != "" {
		out["by"], out["at"] = by, at
	}
	return out
}

func bundleWithApprovals(approvals ...any) *unstructured.Unstructured {
	u := bundleOf(v1alpha1.SourcePropagationPolicy)
	gates := []any{map[string]any{"name": "owner", "approval": map[string]any{}}}
	stages := []any{
		map[string]any{"name": "canary", "clusters": map[string]any{"names": []any{"oslo"}}, "gatesAfter": gates},
		map[string]any{"name": "more", "clusters": map[string]any{"names": []any{"rome"}}},
	}
	_ = unstructured.SetNestedMap(u.Object, map[string]any{"type": "Staged", "stages": stages}, "spec", "rollout")
	_ = unstructured.SetNestedField(u.Object, "web-r2", "status", "revision")
	if len(approvals) > 0 {
		_ = unstructured.SetNestedSlice(u.Object, approvals, "spec", "approvals")
	}
	return u
}

func bundleWithAutoStages(approvals ...any) *unstructured.Unstructured {
	u := bundleWithApprovals(approvals...)
	gates := []any{map[string]any{"name": "owner", "approval": map[string]any{}}}
	_ = unstructured.SetNestedMap(u.Object, map[string]any{
		"type": "Staged", "autoStages": []any{int64(1), "50%"}, "autoStageOptions": map[string]any{"gatesBefore": gates},
	}, "spec", "rollout")
	return u
}

// An approval needs the verb approve, is of the present revision and of a stage with such a gate, and has the user and the time of
// the request, whatever the writer states. It is no way to write anything else, nor the approval of another user.
func TestApprovals(t *testing.T) {
	const began, now = "2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"
	bobs := approvalOf("canary", "web-r2", "bob", began)
	sixtyFour := slices.Repeat([]any{approvalOf("canary", "web-r1", "bob", began)}, 64)
	withPause := bundleWithApprovals(approvalOf("canary", "web-r2", "", ""))
	_ = unstructured.SetNestedMap(withPause.Object, map[string]any{"message": "x"}, "spec", "pause")
	for name, c := range map[string]struct {
		user        string
		before, now *unstructured.Unstructured
		want        string // user, time
		refused     string
	}{
		"an approval":                                  {"alice", bundleWithApprovals(), bundleWithApprovals(approvalOf("canary", "web-r2", "", "")), "alice " + now, ""},
		"in the name of another":                       {"alice", bundleWithApprovals(), bundleWithApprovals(approvalOf("canary", "web-r2", "bob", began)), "alice " + now, ""},
		"after that of another":                        {"alice", bundleWithApprovals(bobs), bundleWithApprovals(bobs, approvalOf("canary", "web-r2", "", "")), "bob " + began + ", alice " + now, ""},
		"that of another is edited":                    {"alice", bundleWithApprovals(bobs), bundleWithApprovals(approvalOf("canary", "web-r2", "bob", "2099-01-01T00:00:00Z")), "alice " + now, ""},
		"again":                                        {"alice", bundleWithApprovals(bobs, approvalOf("canary", "web-r2", "alice", began)), bundleWithApprovals(bobs, approvalOf("canary", "web-r2", "alice", began), approvalOf("canary", "web-r2", "", "")), "bob " + began + ", alice " + now, ""},
		"that of another is withdrawn":                 {"alice", bundleWithApprovals(bobs), bundleWithApprovals(), "", ""},
		"earlier revisions go":                         {"alice", bundleWithApprovals(approvalOf("canary", "web-r1", "bob", began)), bundleWithApprovals(approvalOf("canary", "web-r1", "bob", began), approvalOf("canary", "web-r2", "", "")), "alice " + now, ""},
		"as many of earlier revisions as there may be": {"alice", bundleWithApprovals(sixtyFour...), bundleWithApprovals(append(slices.Clone(sixtyFour), approvalOf("canary", "web-r2", "", ""))...), "alice " + now, ""},
		"without the right":                            {"mallory", bundleWithApprovals(), bundleWithApprovals(approvalOf("canary", "web-r2", "alice", began)), "mallory " + now, "the verb approve on bundles.atoll.dev is needed"},
		"withdrawn without the right":                  {"mallory", bundleWithApprovals(bobs), bundleWithApprovals(), "", "the verb approve"},
		"of another revision":                          {"alice", bundleWithApprovals(), bundleWithApprovals(approvalOf("canary", "web-r3", "", "")), "alice " + now, "spec.approvals[0].revision"},
		"of a stage without a gate":                    {"alice", bundleWithApprovals(), bundleWithApprovals(approvalOf("more", "web-r2", "", "")), "alice " + now, "spec.approvals[0].stage"},
		"of no stage":                                  {"alice", bundleWithApprovals(), bundleWithApprovals(approvalOf("none", "web-r2", "", "")), "alice " + now, "spec.approvals[0].stage"},
		"of an automatic stage":                        {"alice", bundleWithAutoStages(), bundleWithAutoStages(approvalOf("auto 50%", "web-r2", "", "")), "alice " + now, ""},
		"of the first automatic stage":                 {"alice", bundleWithAutoStages(), bundleWithAutoStages(approvalOf("auto 1", "web-r2", "", "")), "alice " + now, "spec.approvals[0].stage"},
		"with something else":                          {"alice", bundleWithApprovals(), withPause, "alice " + now, "may be changed, and one at a time"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{Own: func(user.Info) bool { return false }, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC))})
			p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetUser().GetName() == "alice" && a.GetVerb() == "approve" && a.GetResource() == "bundles" && a.GetAPIGroup() == "atoll.dev" && a.GetNamespace() == "shop" && a.GetName() == "web" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}))
			a := admission.NewAttributesRecord(c.now, c.before, schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}, "shop", "web",
				schema.GroupVersionResource{Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"}, "", admission.Update, nil, false, &user.DefaultInfo{Name: c.user})
			p.stampRolloutAuthor(a)
			var got []string
			list, _, _ := unstructured.NestedSlice(c.now.Object, "spec", "approvals")
			for _, one := range list {
				got = append(got, fmt.Sprint(one.(map[string]any)["by"], " ", one.(map[string]any)["at"]))
			}
			if is := strings.Join(got, ", "); is != c.want {
				t.Errorf("approved by %q, want %q", is, c.want)
			}
			err := fmt.Sprint(p.validateHubWrittenKinds(context.Background(), a))
			if c.refused == "" && err != "<nil>" || !strings.Contains(err, c.refused) {
				t.Errorf("refused with %s, want %q", err, c.refused)
			}
		})
	}
}
