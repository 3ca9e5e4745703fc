package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// A rollout that could not be honoured is refused by the path of its field.
func TestFieldsOfARollout(t *testing.T) {
	named := v1alpha1.StageClusters{Names: []string{"oslo"}}
	selects := func(labels map[string]string, operator metav1.LabelSelectorOperator) v1alpha1.StageClusters {
		sel := &metav1.LabelSelector{MatchLabels: labels}
		if operator != "" {
			sel.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: operator}}
		}
		return v1alpha1.StageClusters{LabelSelector: sel}
	}
	bound := func(text string) *intstr.IntOrString {
		b := intstr.Parse(text)
		return &b
	}
	staged := func(stages ...v1alpha1.RolloutStage) *v1alpha1.Rollout {
		return &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: stages}
	}
	auto := func(options *v1alpha1.AutoStageOptions, sizes ...string) *v1alpha1.Rollout {
		out := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStageOptions: options}
		for _, size := range sizes {
			out.AutoStages = append(out.AutoStages, intstr.Parse(size))
		}
		return out
	}
	for name, c := range map[string]struct {
		rollout *v1alpha1.Rollout
		refused string
	}{
		"none":                          {nil, ""},
		"all at once":                   {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll, MaxUnavailable: bound("10%")}, ""},
		"stages":                        {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named, MaxConcurrency: bound("1"), MaxFailures: bound("0")}, v1alpha1.RolloutStage{Name: "b", Clusters: selects(nil, "")}), ""},
		"a name twice":                  {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named}, v1alpha1.RolloutStage{Name: "a", Clusters: named}), "spec.rollout.stages[1].name: Duplicate"},
		"the name of the rest":          {staged(v1alpha1.RolloutStage{Name: "rest", Clusters: named}), "spec.rollout.stages[0].name: Duplicate"},
		"stages without the type":       {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll, Stages: staged(v1alpha1.RolloutStage{Name: "a", Clusters: named}).Stages}, "spec.rollout.type"},
		"the type without stages":       {staged(), "spec.rollout.type"},
		"no cluster may change":         {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named, MaxConcurrency: bound("0")}), "spec.rollout.stages[0].maxConcurrency"},
		"no percentage":                 {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named, MaxConcurrency: bound("0%")}), "spec.rollout.stages[0].maxConcurrency"},
		"more than all":                 {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named, MaxFailures: bound("101%")}), "spec.rollout.stages[0].maxFailures"},
		"less than none":                {staged(v1alpha1.RolloutStage{Name: "a", Clusters: named, MaxFailures: bound("-1")}), "spec.rollout.stages[0].maxFailures"},
		"a word":                        {&v1alpha1.Rollout{MaxUnavailable: bound("some")}, "spec.rollout.maxUnavailable"},
		"an empty word":                 {&v1alpha1.Rollout{MaxUnavailable: bound("")}, "spec.rollout.maxUnavailable"},
		"never available":               {&v1alpha1.Rollout{MaxUnavailable: bound("0")}, "spec.rollout.maxUnavailable"},
		"an operator that is none":      {staged(v1alpha1.RolloutStage{Name: "a", Clusters: selects(nil, "Like")}), "spec.rollout.stages[0].clusters.labelSelector"},
		"a label that is none":          {staged(v1alpha1.RolloutStage{Name: "a", Clusters: selects(map[string]string{"a b": "c"}, "")}), "spec.rollout.stages[0].clusters.labelSelector"},
		"an early stage of all":         {staged(v1alpha1.RolloutStage{Name: "a", Clusters: selects(nil, "")}, v1alpha1.RolloutStage{Name: "b", Clusters: named}), "spec.rollout.stages[0].clusters.labelSelector: Required"},
		"a stage of no clusters":        {staged(v1alpha1.RolloutStage{Name: "a"}), "spec.rollout.stages[0].clusters: Required"},
		"both names and a labelled set": {staged(v1alpha1.RolloutStage{Name: "a", Clusters: v1alpha1.StageClusters{Names: []string{"oslo"}, LabelSelector: &metav1.LabelSelector{}}}), "spec.rollout.stages[0].clusters: Required"},
		"automatic stages":              {auto(nil, "1", "5", "10%", "50%", "100%"), ""},
		"automatic and stated stages":   {&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStages: auto(nil, "1").AutoStages, Stages: staged(v1alpha1.RolloutStage{Name: "a", Clusters: named}).Stages}, "spec.rollout.autoStages: Forbidden"},
		"automatic without the type":    {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll, AutoStages: auto(nil, "1").AutoStages}, "spec.rollout.type"},
		"sizes that descend":            {auto(nil, "1", "50%", "10%"), "spec.rollout.autoStages[2]: Invalid"},
		"a size twice":                  {auto(nil, "3", "3"), "spec.rollout.autoStages[1]: Invalid"},
		"a number after a percentage":   {auto(nil, "10%", "50"), "spec.rollout.autoStages[1]: Invalid"},
		"no first cluster":              {auto(nil, "0", "10%"), "spec.rollout.autoStages[0]: Invalid"},
		"a size above all":              {auto(nil, "1", "101%"), "spec.rollout.autoStages[1]: Invalid"},
		"a size that is a word":         {auto(nil, "some", "%", "", "5"), "spec.rollout.autoStages[0]: Invalid"},
		"options":                       {auto(&v1alpha1.AutoStageOptions{MaxConcurrency: bound("1"), MaxFailures: bound("0"), GatesBefore: []v1alpha1.RolloutGate{{Name: "ok", CEL: "earlier.failed == 0"}}}, "1", "50%"), ""},
		"gates of one stage":            {auto(&v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{{Name: "ok", CEL: "all.failed == 0"}}}, "100%"), "spec.rollout.autoStageOptions.gatesBefore: Forbidden"},
		"windows":                       {&v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{{Type: v1alpha1.ChangeWindowAllow, Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}, ""},
		"a window that never opens":     {&v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{{Type: v1alpha1.ChangeWindowAllow, Schedule: "0 22 31 2 *", Duration: metav1.Duration{Duration: time.Hour}}}}, "spec.rollout.windows[0].schedule: Invalid"},
		"a window of no selector":       {&v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{{Type: v1alpha1.ChangeWindowAllow, Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}, ClusterSelector: &metav1.LabelSelector{}}}}, "spec.rollout.windows[0].clusterSelector: Required"},
		"options alone":                 {&v1alpha1.Rollout{MaxUnavailable: bound("1"), AutoStageOptions: &v1alpha1.AutoStageOptions{}}, "spec.rollout.autoStageOptions: Forbidden"},
		"no cluster of any stage":       {auto(&v1alpha1.AutoStageOptions{MaxConcurrency: bound("0")}, "1"), "spec.rollout.autoStageOptions.maxConcurrency"},
		"failures below none":           {auto(&v1alpha1.AutoStageOptions{MaxFailures: bound("-1")}, "1"), "spec.rollout.autoStageOptions.maxFailures"},
		"an automatic gate of no kind":  {auto(&v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{{Name: "a"}}}, "1"), "spec.rollout.autoStageOptions.gatesBefore[0]: Required"},
	} {
		got := fmt.Sprint(checkRollout(c.rollout, field.NewPath("spec", "rollout")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}

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
		if got := fmt.Sprint(checkRolloutFitsInt32(u).ToAggregate()); !strings.HasPrefix(got, want) {
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
