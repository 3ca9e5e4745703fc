package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/changewindow"
)

// Terms are the compiled bounds of a Bundle's rollout. They are immutable. Nil terms bound nothing, and have
// one stage.
type Terms struct {
	stages         []stage
	maxUnavailable *intstr.IntOrString
	isStaged       bool
	// auto divides the clusters, where Atoll chooses those of the stages; nil: the stages choose them.
	auto *autoStages
	// windows in which rows may take the desired revision; nil: always.
	windows *changewindow.Windows
	// isDefault: the Bundle states no rollout.
	isDefault bool
	// unbounded are the terms of a Bundle with few clusters, where it states windows alone and so keeps the default bound; nil: it does not.
	unbounded *Terms
}

// stage is a compiled stage. The last one has the clusters that no other stage chooses.
type stage struct {
	v1alpha1.RolloutStage
	names    map[string]bool
	selector labels.Selector
	// gates hold its first cluster.
	gates []gate
}

var defaultTerms = &Terms{
	stages:         []stage{{RolloutStage: v1alpha1.RolloutStage{Name: v1alpha1.RestStage}}},
	maxUnavailable: new(intstr.FromString(v1alpha1.DefaultMaxUnavailable)), isDefault: true,
}

// CompileTerms compiles the rollout that a Bundle states, or the default where r is nil; nil: no bound is stated.
func CompileTerms(r *v1alpha1.Rollout) *Terms {
	if r == nil {
		return defaultTerms
	}
	stages := r.ListStages()
	if r.MaxUnavailable == nil && len(stages)+len(r.Windows) == 0 {
		return nil
	}
	t := &Terms{maxUnavailable: r.MaxUnavailable, isStaged: r.Type == v1alpha1.RolloutStaged, windows: changewindow.CompileWindows(r.Windows)}
	if t.keepsDefaultBound() {
		return t.withDefaultBound()
	}
	if t.isStaged {
		t.auto = compileAutoStages(r)
		for _, s := range stages {
			t.stages = append(t.stages, compileStage(s))
		}
	}
	if t.auto == nil {
		t.stages = append(t.stages, stage{RolloutStage: v1alpha1.RolloutStage{Name: v1alpha1.RestStage}})
	}
	for i := range t.stages {
		s := &t.stages[i]
		t.stages[i].gates = append(t.stages[i].gates, compileGates(s.GatesBefore, i, &s.RolloutStage)...)
		if len(s.GatesAfter) > 0 { // the last stage states none
			t.stages[i+1].gates = compileGates(s.GatesAfter, i, &s.RolloutStage)
		}
	}
	return t
}

// keepsDefaultBound reports whether windows alone are stated.
func (t *Terms) keepsDefaultBound() bool { return !t.isStaged && t.maxUnavailable == nil }

// withDefaultBound returns the terms with one stage and the default bound, which few clusters do not have.
func (t *Terms) withDefaultBound() *Terms {
	t.stages = defaultTerms.stages
	out := *t
	out.maxUnavailable, out.unbounded = defaultTerms.maxUnavailable, t
	return &out
}

func compileStage(s v1alpha1.RolloutStage) stage {
	out := stage{RolloutStage: s, selector: labels.Nothing()}
	if s.Clusters.LabelSelector != nil {
		if sel, err := metav1.LabelSelectorAsSelector(s.Clusters.LabelSelector); err == nil { // admission refuses others
			out.selector = sel
		}
	}
	out.names = make(map[string]bool, len(s.Clusters.Names))
	for _, name := range s.Clusters.Names {
		out.names[name] = true
	}
	return out
}

// StageOf returns the index of the stage of a cluster, which was created at a time in Unix seconds.
func (t *Terms) StageOf(name string, clusterLabels map[string]string, createdAt int64) int {
	if t == nil {
		return 0
	}
	if t.auto != nil {
		return t.auto.findStage(name, createdAt)
	}
	last := len(t.stages) - 1
	for i := range t.stages[:last] {
		if s := &t.stages[i]; s.names[name] || s.selector.Matches(labels.Set(clusterLabels)) {
			return i
		}
	}
	return last
}

// IsDefault reports whether the Bundle states no rollout.
func (t *Terms) IsDefault() bool { return t != nil && t.isDefault }

// HasDefaultBound reports whether the Bundle states no maxUnavailable and no stages, so that the default bounds it.
func (t *Terms) HasDefaultBound() bool { return t != nil && (t.isDefault || t.unbounded != nil) }

// ForClusters returns the terms that hold for a Bundle with so many clusters that have a copy.
func (t *Terms) ForClusters(n int) *Terms {
	if t.HasDefaultBound() && n <= v1alpha1.DefaultFreeClusters {
		return t.unbounded
	}
	return t
}

// budgetTerms bound nothing but what a disruption budget does.
var budgetTerms = &Terms{stages: defaultTerms.stages, isDefault: true}

// WithBudget returns the terms of a Bundle with a disruption budget: its rows change in turns, also where no rollout bounds them.
func (t *Terms) WithBudget(b *v1alpha1.DisruptionBudget) *Terms {
	if t == nil && b != nil {
		return budgetTerms
	}
	return t
}

// HasStages reports whether clusters are in different stages.
func (t *Terms) HasStages() bool { return t != nil && t.isStaged }

// CountStages returns the number of stages.
func (t *Terms) CountStages() int {
	if t == nil {
		return 1
	}
	return len(t.stages)
}

// StageName returns the name of a stage.
func (t *Terms) StageName(i int) string {
	if t == nil {
		return v1alpha1.RestStage
	}
	return t.stages[i].Name
}

// gatesInto returns the gates that hold the first cluster of a stage.
func (t *Terms) gatesInto(i int) []gate {
	if t == nil {
		return nil
	}
	return t.stages[i].gates
}

// noBound is a bound that nothing reaches.
const noBound = int(^uint(0) >> 1)

// concurrencyOf returns how many clusters of a stage may change at one time.
func (t *Terms) concurrencyOf(i, clusters int) int {
	if t == nil || t.stages[i].MaxConcurrency == nil {
		return noBound
	}
	return max(1, scaleBound(*t.stages[i].MaxConcurrency, clusters, true))
}

// failuresOf returns how many clusters of a stage may fail.
func (t *Terms) failuresOf(i, clusters int) int {
	switch {
	case !t.HasStages(), t.stages[i].OnFailure == v1alpha1.FailureContinue:
		return noBound
	case t.stages[i].MaxFailures == nil:
		return 0
	}
	return scaleBound(*t.stages[i].MaxFailures, clusters, false)
}

// unavailableOf returns how many clusters may be unhealthy when a healthy one changes.
func (t *Terms) unavailableOf(clusters int) int {
	if t == nil || t.maxUnavailable == nil {
		return noBound
	}
	return max(1, scaleBound(*t.maxUnavailable, clusters, false))
}

// successTimeOf returns how long the clusters of a stage must be healthy.
func (t *Terms) successTimeOf(i int) time.Duration {
	if t == nil || t.stages[i].MinSuccessTime == nil {
		return 0
	}
	return t.stages[i].MinSuccessTime.Duration
}

// scaleBound returns a number, or a percentage of the clusters. A bound that cannot be read, which admission
// refuses, is 0.
func scaleBound(b intstr.IntOrString, clusters int, roundUp bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&b, clusters, roundUp)
	if err != nil {
		return 0
	}
	return n
}
