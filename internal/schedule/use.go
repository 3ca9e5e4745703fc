package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The measures of a Use that are no resource. Pods are counted as replicas.
const (
	MeasureObjects  = "objects"
	MeasureReplicas = "replicas"
)

// Measure of one thing: objects, replicas, or a resource by its name. CPU is in
// thousandths, memory in bytes, all else in units.
type Measure struct {
	Name string
	N    int64
}

// Use of a cluster, or what bounds it, by name. Never changed, only replaced; what is not
// there is 0 of a use, and unbounded as a bound. Sums stop at MaxInt64.
type Use []Measure

// CapacityOf what a Cluster states; nil: nothing.
func CapacityOf(c *v1alpha1.ClusterCapacity) Use {
	if c == nil {
		return nil
	}
	var out Use
	bound := func(name string, n int64) {
		if i := slices.IndexFunc(out, func(m Measure) bool { return m.Name == name }); i >= 0 {
			out[i].N = min(out[i].N, n)
			return
		}
		out = append(out, Measure{name, n})
	}
	if c.Replicas != nil {
		bound(MeasureReplicas, max(*c.Replicas, 0))
	}
	if c.Objects != nil {
		bound(MeasureObjects, max(*c.Objects, 0))
	}
	for name, q := range c.Resources {
		switch {
		case name == corev1.ResourceCPU:
			bound(string(name), atoll.Thousandths(q))
		case name == corev1.ResourcePods:
			bound(MeasureReplicas, atoll.Units(q))
		default:
			bound(string(name), atoll.Units(q))
		}
	}
	slices.SortFunc(out, func(a, b Measure) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// mostBounds of resources that a cluster may state.
const mostBounds = 64

// CheckCapacity refuses bounds that bound nothing: negative ones, and resources that no
// pod can request.
func CheckCapacity(c *v1alpha1.ClusterCapacity, at *field.Path) (errs field.ErrorList) {
	if c == nil {
		return nil
	}
	for _, n := range []struct {
		name  string
		value *int64
	}{{"replicas", c.Replicas}, {"objects", c.Objects}} {
		if n.value != nil && *n.value < 0 {
			errs = append(errs, field.Invalid(at.Child(n.name), *n.value, "must not be negative; leave it out for no bound"))
		}
	}
	if n := len(c.Resources); n > mostBounds {
		return append(errs, field.TooMany(at.Child("resources"), n, mostBounds))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		q, at := c.Resources[name], at.Child("resources").Key(string(name))
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must not be negative; leave it out for no bound"))
		}
		if why := notRequested(name); why != "" {
			errs = append(errs, field.Invalid(at, string(name), why))
		}
	}
	return errs
}

// notRequested says why no pod requests a resource of that name; empty: some may.
func notRequested(name corev1.ResourceName) string {
	switch s := string(name); {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourcePods, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(s, corev1.ResourceHugePagesPrefix) && len(s) > len(corev1.ResourceHugePagesPrefix):
		return ""
	case strings.HasPrefix(s, "requests.") || strings.HasPrefix(s, "limits."):
		return "is the name of a quota: say " + s[strings.IndexByte(s, '.')+1:] + ", which bounds what is requested"
	case strings.Contains(s, "/") && len(validation.IsQualifiedName(s)) == 0:
		return ""
	}
	return "is no resource that pods request: cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or one with a domain such as nvidia.com/gpu"
}

// Of one measure; 0 where there is none of it.
func (u Use) Of(name string) int64 {
	for i := range u {
		if u[i].Name == name {
			return u[i].N
		}
	}
	return 0
}

// Over tells whether something is more than can be counted, so that taking away from it
// says nothing.
func (u Use) Over() bool {
	return slices.ContainsFunc(u, func(m Measure) bool { return m.N == math.MaxInt64 })
}

// With so many times another use on top; times below 0 take away, and nothing goes
// below 0.
func (u Use) With(o Use, times int64) Use {
	if times == 0 || len(o) == 0 {
		return u
	}
	out := make(Use, 0, len(u)+len(o))
	for len(u) > 0 || len(o) > 0 {
		switch {
		case len(o) == 0 || len(u) > 0 && u[0].Name < o[0].Name:
			out, u = append(out, u[0]), u[1:]
		case len(u) == 0 || o[0].Name < u[0].Name:
			out, o = append(out, Measure{o[0].Name, amount(0, o[0].N, times)}), o[1:]
		default:
			out, u, o = append(out, Measure{u[0].Name, amount(u[0].N, o[0].N, times)}), u[1:], o[1:]
		}
	}
	return slices.DeleteFunc(out, func(m Measure) bool { return m.N == 0 })
}

// Max of both, measure by measure.
func (u Use) Max(o Use) Use {
	return u.With(o.Without(u), 1)
}

// Without what another use has: what is more, measure by measure.
func (u Use) Without(o Use) Use { return u.With(o, -1) }

// amount of a and times as much as b, between 0 and MaxInt64.
func amount(a, b, times int64) int64 {
	if times < 0 {
		return max(a-atoll.Times(b, -times), 0)
	}
	return atoll.Plus(a, atoll.Times(b, times))
}

// exceeded is the first bound that a cluster exceeds when a Bundle uses ask there, beside
// what others do, among those of which it uses more than before.
func (u Use) exceeded(others, ask, before Use) (bound Measure, over bool) {
	for _, b := range u {
		if n := ask.Of(b.Name); n > before.Of(b.Name) && n > b.N-min(others.Of(b.Name), b.N) {
			return b, true
		}
	}
	return bound, false
}

// Exceeded tells whether the bounds keep a Bundle from using ask where it used before, and
// others use what they do.
func (u Use) Exceeded(others, ask, before Use) bool {
	_, over := u.exceeded(others, ask, before)
	return over
}

// fit tells how many times each fits beside what is used; Unbounded where no bound is
// about it.
func (u Use) fit(used, each Use) int64 {
	n := int64(Unbounded)
	for _, b := range u {
		if per := each.Of(b.Name); per > 0 {
			n = min(n, max(b.N-min(used.Of(b.Name), b.N), 0)/per)
		}
	}
	return n
}

// Text of an amount as people state it.
func (m Measure) Text(n int64) string {
	switch {
	case m.Name == string(corev1.ResourceCPU):
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case m.Name == string(corev1.ResourceMemory) || m.Name == string(corev1.ResourceEphemeralStorage) || strings.HasPrefix(m.Name, corev1.ResourceHugePagesPrefix):
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return fmt.Sprint(n)
}

// Path of the bound in a Cluster's spec.
func (m Measure) Path() string {
	if m.Name == MeasureObjects || m.Name == MeasureReplicas {
		return "capacity." + m.Name
	}
	return "capacity.resources[" + m.Name + "]"
}

// Demand is what a content asks of each cluster that holds it. Read-only.
type Demand struct {
	// fixed: its objects, and the pods of workloads that are not divided.
	fixed Use
	parts []portion
	// least is what it asks of a cluster that it comes to, each of it enough: what is
	// fixed, and a replica of something that is divided and has any.
	least []Use
}

// portion of what is divided.
type portion struct {
	key      string
	replicas int64
	each     Use
}

// DemandOf a content.
func DemandOf(content *atoll.Content) (*Demand, error) {
	d := &Demand{}
	if content == nil {
		content = &atoll.Content{}
	}
	d.fixed = Use(nil).With(Use{{MeasureObjects, int64(len(content.Items))}}, 1)
	for i := range content.Items {
		item := &content.Items[i]
		var obj map[string]any
		if err := utiljson.Unmarshal(item.Object, &obj); err != nil {
			return nil, fmt.Errorf("%s is not an object: %w", item.Key, err)
		}
		u := &unstructured.Unstructured{Object: obj}
		n, sets := PodsOf(item, u)
		var each Use
		for _, s := range sets {
			each = each.With(podUse(s.Requests), s.Count)
		}
		if _, replicated := ReplicasOf(item, u); item.Divided && replicated {
			d.parts = append(d.parts, portion{key: item.Key.String(), replicas: max(n, 0), each: each})
		} else {
			d.fixed = d.fixed.With(each, n)
		}
	}
	for i := range d.parts {
		if d.parts[i].replicas > 0 {
			d.least = append(d.least, d.fixed.With(d.parts[i].each, 1))
		}
	}
	if d.least == nil {
		d.least = []Use{d.fixed}
	}
	return d, nil
}

// podUse is what one pod uses.
func podUse(requests map[corev1.ResourceName]int64) Use {
	out := make(Use, 0, len(requests)+1)
	for name, n := range requests {
		out = append(out, Measure{string(name), max(n, 0)})
	}
	out = append(out, Measure{MeasureReplicas, 1})
	slices.SortFunc(out, func(a, b Measure) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Use of a cluster whose row is assigned these replicas, by item key.
func (d *Demand) Use(assigned map[string]int64) Use {
	if d == nil {
		return nil
	}
	u := d.fixed
	for i := range d.parts {
		if n := assigned[d.parts[i].key]; n > 0 {
			u = u.With(d.parts[i].each, n)
		}
	}
	return u
}
