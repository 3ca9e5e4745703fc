package explain

import (
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestHowMembersTreatAnObject(t *testing.T) {
	for name, c := range map[string]struct {
		treatment *atoll.Treatment
		want      []string
	}{
		"as all others": {},
		"create only": {&atoll.Treatment{Update: v1alpha1.UpdateCreateOnly, Removal: v1alpha1.RemoveDelete}, []string{
			"Clusters create it and own it from then on (update: CreateOnly): no edit or override reaches it there.",
			"It is deleted in clusters that it is taken out of (removal: Delete).",
		}},
		"drift waits for an approval": {&atoll.Treatment{Drift: v1alpha1.DriftApprove}, []string{
			"Clusters write nothing of it before a person approves what they report (drift: Approve): atoll drift lists the differences, and atoll drift correct approves them.",
		}},
		"drift is reported": {&atoll.Treatment{Drift: v1alpha1.DriftReport}, []string{
			"Clusters write nothing of it, and report where it differs (drift: Report): atoll drift lists the differences.",
		}},
		"read only": {&atoll.Treatment{Update: v1alpha1.UpdateReadOnly}, []string{
			"Clusters write nothing of it, and report its health (update: ReadOnly).",
		}},
		"recreated": {&atoll.Treatment{Update: v1alpha1.UpdateRecreate, IgnoreFields: []string{"/data/a"}}, []string{
			"Clusters delete it and create it again where they refuse an edit (update: Recreate).",
			"Each cluster keeps its own values of /data/a (ignoreFields).",
		}},
		"a resolution of conflicts": {&atoll.Treatment{ConflictResolution: v1alpha1.ConflictOverwrite}, []string{
			"An object of this name that is not Atoll's is adopted and overwritten (conflictResolution: Overwrite).",
		}},
		"removed last": {&atoll.Treatment{Removal: v1alpha1.RemoveLast}, []string{
			"It is deleted in clusters that it is taken out of, after all other objects of the Bundle that go there (removal: Last).",
		}},
		"removed with its Bundle": {&atoll.Treatment{Removal: v1alpha1.RemoveWithBundle}, []string{
			"It stays in clusters that it is taken out of, and is deleted where its Bundle is deleted (removal: WithBundle).",
		}},
		"a hook": {&atoll.Treatment{Wave: 2, Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreSync, atoll.HookPostSync}}}, []string{
			"It is a hook: clusters run it once for each content of the Bundle, in PreSync, PostSync, and delete it by BeforeHookCreation.",
			"It is of wave 2 of its phase.",
		}},
		"a hook of a removal": {&atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPreDelete}, DeletePolicies: []atoll.HookDeletePolicy{atoll.HookSucceeded}}}, []string{
			"It is a hook: clusters run it once for each removal of the Bundle, in PreDelete, and delete it by HookSucceeded.",
		}},
		"a hook of both": {&atoll.Treatment{Hook: &atoll.Hook{Events: []atoll.HookEvent{atoll.HookPostSync, atoll.HookPostDelete}}}, []string{
			"It is a hook: clusters run it once for each content and each removal of the Bundle, in PostSync, PostDelete, and delete it by BeforeHookCreation.",
		}},
		"a hook that never runs": {&atoll.Treatment{Hook: &atoll.Hook{}}, []string{"It is a hook that never runs: clusters do not apply it."}},
		"a wave": {&atoll.Treatment{Wave: -2}, []string{
			"It is of wave -2: clusters apply it when the wave before is healthy, and remove it before earlier waves.",
		}},
		"assessed": {&atoll.Treatment{Assessment: &atoll.Assessment{
			Feedback: []v1alpha1.FeedbackRule{{Name: "a"}, {Name: "b"}}, Health: []v1alpha1.HealthRule{{Expression: "true"}}, Completion: "has(object.done)",
		}}, []string{
			"Clusters report a, b of it (feedback).", "It is healthy where the expression of its policy is true (health).", "It has run to completion where has(object.done) is true (completion).",
		}},
		"deleted after it finished": {&atoll.Treatment{Assessment: &atoll.Assessment{TTLSecondsAfterFinished: new(int32)}}, []string{
			"Clusters delete it 0 s after it has run to completion (ttlSecondsAfterFinished).",
		}},
		"a removal to confirm": {&atoll.Treatment{Removal: v1alpha1.RemoveConfirm}, []string{
			"It stays in clusters that it is taken out of until a person confirms it with `atoll confirm` (removal: Confirm).",
		}},
		"a ServiceAccount": {&atoll.Treatment{ServiceAccount: "shop/deployer"}, []string{
			"Clusters write only what their ServiceAccount shop/deployer has the right to as well (serviceAccount).",
		}},
		"fields": {&atoll.Treatment{IgnoreFields: []string{"/data/a", "/data/b"}, Removal: v1alpha1.RemoveOrphan}, []string{
			"Each cluster keeps its own values of /data/a, /data/b (ignoreFields).",
			"It stays in clusters that it is taken out of (removal: Orphan).",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := shopBundle()
			i := slices.IndexFunc(b.Content.Items, func(i atoll.Item) bool { return i.Key == webKey })
			b.Content.Items = slices.Clone(b.Content.Items)
			b.Content.Items[i].Treatment = c.treatment
			e := Explain(explainInput(webKey, b))
			if e.Bundles[0].Treatment != c.treatment {
				t.Errorf("treatment %+v, want %+v", e.Bundles[0].Treatment, c.treatment)
			}
			text := e.FormatText(false)
			for _, line := range c.want {
				if !strings.Contains(text, "\n  "+line+"\n") {
					t.Errorf("lacks %q:\n%s", line, text)
				}
			}
			if len(c.want) == 0 && (strings.Contains(text, "ignoreFields") || strings.Contains(text, "update:")) {
				t.Errorf("says something of a treatment:\n%s", text)
			}
		})
	}
}
