package policycheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

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

// A gate that could not be honoured is refused by the path of its field.
func TestGatesOfARollout(t *testing.T) {
	wait := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for name, c := range map[string]struct {
		before, after []v1alpha1.RolloutGate
		refused       string
	}{
		"one of each kind": {[]v1alpha1.RolloutGate{{Name: "a", Wait: wait(time.Hour)}, {Name: "b", Approval: &v1alpha1.ApprovalGate{}}}, []v1alpha1.RolloutGate{{Name: "c", CEL: "all.failed == 0"}}, ""},
		"of no kind":       {[]v1alpha1.RolloutGate{{Name: "a"}}, nil, "spec.rollout.stages[0].gatesBefore[0]: Required"},
		"of two kinds":     {nil, []v1alpha1.RolloutGate{{Name: "a", Wait: wait(time.Hour), CEL: "all.failed == 0"}}, "spec.rollout.stages[0].gatesAfter[0]: Required"},
		"a name twice":     {[]v1alpha1.RolloutGate{{Name: "a", Wait: wait(time.Hour)}}, []v1alpha1.RolloutGate{{Name: "a", Wait: wait(time.Hour)}}, "spec.rollout.stages[0].gatesAfter[0].name: Duplicate"},
		"no time":          {[]v1alpha1.RolloutGate{{Name: "a", Wait: wait(0)}}, nil, "spec.rollout.stages[0].gatesBefore[0].wait"},
		"too much time":    {[]v1alpha1.RolloutGate{{Name: "a", Wait: wait(721 * time.Hour)}}, nil, "spec.rollout.stages[0].gatesBefore[0].wait"},
		"two approvals":    {[]v1alpha1.RolloutGate{{Name: "a", Approval: &v1alpha1.ApprovalGate{}}}, []v1alpha1.RolloutGate{{Name: "b", Approval: &v1alpha1.ApprovalGate{}}}, "spec.rollout.stages[0].gatesAfter[0].approval: Forbidden"},
		"none is earlier":  {[]v1alpha1.RolloutGate{{Name: "a", CEL: "earlier.failed == 0"}}, nil, "spec.rollout.stages[0].gatesBefore[0].cel: Invalid"},
		"no expression":    {[]v1alpha1.RolloutGate{{Name: "a", CEL: "all.lost == 0"}}, nil, "spec.rollout.stages[0].gatesBefore[0].cel"},
		"no number":        {[]v1alpha1.RolloutGate{{Name: "a", Approval: &v1alpha1.ApprovalGate{Approvers: -1}}}, nil, "spec.rollout.stages[0].gatesBefore[0].approval.approvers"},
		"a short validity": {[]v1alpha1.RolloutGate{{Name: "a", Approval: &v1alpha1.ApprovalGate{ValidFor: wait(time.Second)}}}, nil, "spec.rollout.stages[0].gatesBefore[0].approval.validFor"},
	} {
		stage := v1alpha1.RolloutStage{Name: "a", Clusters: v1alpha1.StageClusters{Names: []string{"oslo"}}, GatesBefore: c.before, GatesAfter: c.after}
		got := fmt.Sprint(checkRollout(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{stage}}, field.NewPath("spec", "rollout")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}

// A Bundle holds as many approvals as its schema accepts: gates that need more could never open.
func TestApprovalsThatABundleCanHold(t *testing.T) {
	for stages, refused := range map[int]bool{6: false, 7: true} {
		r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}
		for i := range stages {
			r.Stages = append(r.Stages, v1alpha1.RolloutStage{
				Name: fmt.Sprint("s", i), Clusters: v1alpha1.StageClusters{Names: []string{"oslo"}},
				GatesAfter: []v1alpha1.RolloutGate{{Name: "owner", Approval: &v1alpha1.ApprovalGate{Approvers: 10}}},
			})
		}
		got := fmt.Sprint(checkRollout(r, field.NewPath("spec", "rollout")).ToAggregate())
		if strings.Contains(got, "spec.rollout.stages: Invalid") != refused {
			t.Errorf("%d stages with 10 approvals each: %s, want a refusal: %t", stages, got, refused)
		}
	}
	for stages, refused := range map[int]bool{7: false, 8: true} { // the first one has no gate
		r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStageOptions: &v1alpha1.AutoStageOptions{GatesBefore: []v1alpha1.RolloutGate{{Name: "owner", Approval: &v1alpha1.ApprovalGate{Approvers: 10}}}}}
		for i := range stages - 1 { // one of all clusters follows
			r.AutoStages = append(r.AutoStages, intstr.FromInt(i+1))
		}
		got := fmt.Sprint(checkRollout(r, field.NewPath("spec", "rollout")).ToAggregate())
		if strings.Contains(got, "spec.rollout.autoStages: Invalid") != refused {
			t.Errorf("%d automatic stages with 10 approvals each: %s, want a refusal: %t", stages, got, refused)
		}
	}
}
