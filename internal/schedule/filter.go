package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Cluster is what placement sees of a Cluster: only what was set on the hub.
type Cluster struct {
	atoll.ClusterView
	UID      string
	Accepted bool
	Deleting bool
	Taints   []v1alpha1.Taint
	// Resources that its agent reported, by name. Only scores look at them.
	Resources []Amount
}

// ClusterOf an API object; shares memory with it.
func ClusterOf(c *v1alpha1.Cluster) Cluster {
	return Cluster{
		ClusterView: atoll.ViewOf(c), UID: string(c.UID),
		Accepted: c.Spec.Accepted, Deleting: c.DeletionTimestamp != nil, Taints: c.Spec.Taints,
		Resources: AmountsOf(&c.Status.Resources),
	}
}

// The filters, in the order in which they are asked.
const (
	FilterAccepted = "accepted"
	FilterDeleting = "deleting"
	FilterExclude  = "exclude"
	FilterNames    = "clusterNames"
	FilterLabels   = "labelSelector"
	FilterFields   = "fieldSelector"
	FilterTaints   = "taints"
)

// Filter is a placement made ready to be asked about many clusters.
type Filter struct {
	names, exclude map[string]bool
	labels         labels.Selector
	labelsReason   string
	fields         *v1alpha1.ClusterAffinity
	tolerations    []corev1.Toleration
	labelPrint     string
	fieldPrint     string
	choice         *choice
	// print of the selectors and of the choice, as rows remember it.
	print string
}

// Compile a placement. A malformed label selector refuses every cluster, with the
// error as the reason; admission keeps those out.
func Compile(p v1alpha1.Placement) *Filter {
	f := &Filter{tolerations: p.ClusterTolerations, choice: compileChoice(&p)}
	f.useAffinity(p.ClusterAffinity)
	if f.choice != nil {
		f.print = withChoice(f.print, f.choice.print)
	}
	return f
}

func (f *Filter) useAffinity(a *v1alpha1.ClusterAffinity) {
	if a == nil {
		return
	}
	f.names, f.exclude = set(a.ClusterNames), set(a.ExcludeClusters)
	if a.LabelSelector != nil {
		sel, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil {
			f.labels, f.labelsReason = labels.Nothing(), fmt.Sprintf("labelSelector is malformed: %v", err)
			f.labelPrint = print8(a.LabelSelector)
		} else {
			f.labels, f.labelsReason = sel, fmt.Sprintf("labels do not match %q", sel)
			f.labelPrint = print8(sel.String())
		}
	}
	if a.FieldSelector != nil {
		f.fields = &v1alpha1.ClusterAffinity{FieldSelector: a.FieldSelector}
		f.fieldPrint = print8(a.FieldSelector)
	}
	if f.labelPrint != "" || f.fieldPrint != "" {
		f.print = f.labelPrint + "." + f.fieldPrint
	}
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func print8(v any) string { return atoll.HashJSON(v)[:8] }

// Fits tells whether a cluster that does not hold the Bundle yet may get it, and
// if not, which filter refuses it and why.
func (f *Filter) Fits(c Cluster) (ok bool, filter, reason string) {
	r, refused := f.first(&c)
	return !refused, r.filter, r.reason
}

// Names of the clusters that the placement names; nil when it names none, so that any
// may fit.
func (f *Filter) Names() []string {
	if f.names == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.names))
}

// refusal by one filter.
type refusal struct {
	filter, reason string
	// print of the selector that refuses; empty for filters that have none.
	print string
}

// first refusal of a cluster that does not hold the Bundle yet.
func (f *Filter) first(c *Cluster) (r refusal, refused bool) {
	if r, refused = f.admitted(c); refused {
		return r, true
	}
	if r, refused = f.named(c); refused {
		return r, true
	}
	if r, refused = f.selected(c); refused {
		return r, true
	}
	if r, refused = f.fielded(c); refused {
		return r, true
	}
	return f.tainted(c, true)
}

// refusals of a cluster that holds the Bundle, in the order of the filters: all but
// those of NoExecute taints.
func (f *Filter) refusals(c *Cluster) (out []refusal) {
	add := func(r refusal, refused bool) {
		if refused {
			out = append(out, r)
		}
	}
	add(f.admitted(c))
	add(f.named(c))
	add(f.selected(c))
	add(f.fielded(c))
	add(f.tainted(c, false))
	return out
}

func (f *Filter) admitted(c *Cluster) (refusal, bool) {
	switch {
	case !c.Accepted:
		return refusal{filter: FilterAccepted, reason: "not accepted: `atoll accept " + c.Name + "` is missing"}, true
	case c.Deleting:
		return refusal{filter: FilterDeleting, reason: "the Cluster is being deleted"}, true
	}
	return refusal{}, false
}

func (f *Filter) named(c *Cluster) (refusal, bool) {
	switch {
	case f.exclude[c.Name]:
		return refusal{filter: FilterExclude, reason: "named in exclude"}, true
	case f.names != nil && !f.names[c.Name]:
		return refusal{filter: FilterNames, reason: "not named in clusterNames"}, true
	}
	return refusal{}, false
}

func (f *Filter) selected(c *Cluster) (refusal, bool) {
	if f.labels == nil || f.labels.Matches(labels.Set(c.Labels)) {
		return refusal{}, false
	}
	return refusal{filter: FilterLabels, reason: f.labelsReason, print: f.labelPrint}, true
}

func (f *Filter) fielded(c *Cluster) (refusal, bool) {
	if f.fields == nil {
		return refusal{}, false
	}
	ok, reason := atoll.MatchAffinity(f.fields, c.ClusterView)
	return refusal{filter: FilterFields, reason: reason, print: f.fieldPrint}, !ok
}

// tainted checks NoSchedule taints, and for clusters that do not hold the Bundle
// yet also NoExecute ones: what would be evicted is not placed, so a toleration
// for some seconds admits nothing new.
func (f *Filter) tainted(c *Cluster, newcomer bool) (refusal, bool) {
	for _, t := range c.Taints {
		if t.Effect == corev1.TaintEffectNoExecute && !newcomer {
			continue
		}
		tol, tolerated := f.tolerates(t)
		switch {
		case !tolerated:
			return refusal{filter: FilterTaints, reason: fmt.Sprintf("taint %s is not tolerated", name(t))}, true
		case t.Effect == corev1.TaintEffectNoExecute && tol.TolerationSeconds != nil:
			return refusal{filter: FilterTaints, reason: fmt.Sprintf("taint %s is tolerated for %d s only", name(t), *tol.TolerationSeconds)}, true
		}
	}
	return refusal{}, false
}

// eviction tells when NoExecute taints take out what runs; zero: never.
func (f *Filter) eviction(c *Cluster, now time.Time) (at time.Time, reason string) {
	for _, t := range c.Taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		end, why := now, fmt.Sprintf("taint %s is not tolerated", name(t))
		if tol, tolerated := f.tolerates(t); tolerated {
			if tol.TolerationSeconds == nil {
				continue
			}
			why = fmt.Sprintf("taint %s was tolerated for %d s", name(t), *tol.TolerationSeconds)
			if s := *tol.TolerationSeconds; s > 0 {
				if t.TimeAdded == nil {
					continue
				}
				end = t.TimeAdded.Add(time.Duration(min(s, maxSeconds)) * time.Second)
			}
		}
		if at.IsZero() || end.Before(at) {
			at, reason = end, why
		}
	}
	return at, reason
}

// maxSeconds keeps a duration from overflowing: 100 years.
const maxSeconds = 100 * 365 * 24 * 3600

// tolerates gives the first toleration that covers the taint.
func (f *Filter) tolerates(t v1alpha1.Taint) (corev1.Toleration, bool) {
	for _, tol := range f.tolerations {
		if covers(tol, t) {
			return tol, true
		}
	}
	return corev1.Toleration{}, false
}

func covers(tol corev1.Toleration, t v1alpha1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}

func name(t v1alpha1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}
