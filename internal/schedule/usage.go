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
	"atoll.dev/atoll/internal/quantity"
)

// The measures of a ResourceUsage that are no resource. Pods are counted as replicas.
const (
	MeasureObjects  = "objects"
	MeasureReplicas = "replicas"
)

// UsageMeasure is an amount of one thing: objects, replicas, or a resource by its name. CPU
// is in thousandths, memory in bytes, all else in units.
type UsageMeasure struct {
	Name     string
	Quantity int64
}

// ResourceUsage of a cluster, or its bounds, by name. It is never changed, only replaced. A
// missing measure is 0 as a usage, and unbounded as a bound. Sums stop at MaxInt64.
type ResourceUsage []UsageMeasure

// CapacityOf returns the bounds that the capacity of a Cluster states; nil: none.
func CapacityOf(c *v1alpha1.ClusterCapacity) ResourceUsage {
	if c == nil {
		return nil
	}
	var out ResourceUsage
	bound := func(name string, n int64) {
		if i := slices.IndexFunc(out, func(m UsageMeasure) bool { return m.Name == name }); i >= 0 {
			out[i].Quantity = min(out[i].Quantity, n)
			return
		}
		out = append(out, UsageMeasure{name, n})
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
			bound(string(name), quantity.MilliUnits(q))
		case name == corev1.ResourcePods:
			bound(MeasureReplicas, quantity.WholeUnits(q))
		default:
			bound(string(name), quantity.WholeUnits(q))
		}
	}
	slices.SortFunc(out, func(a, b UsageMeasure) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// maxCapacityBounds is how many resources a cluster may bound.
const maxCapacityBounds = 64

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
	if n := len(c.Resources); n > maxCapacityBounds {
		return append(errs, field.TooMany(at.Child("resources"), n, maxCapacityBounds))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources)) {
		q, at := c.Resources[name], at.Child("resources").Key(string(name))
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must not be negative; leave it out for no bound"))
		}
		if why := explainUnrequestable(name); why != "" {
			errs = append(errs, field.Invalid(at, string(name), why))
		}
	}
	return errs
}

// explainUnrequestable returns why no pod requests a resource of that name; empty: some may.
func explainUnrequestable(name corev1.ResourceName) string {
	switch s := string(name); {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourcePods, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(s, corev1.ResourceHugePagesPrefix) && len(s) > len(corev1.ResourceHugePagesPrefix):
		return ""
	case strings.HasPrefix(s, "requests.") || strings.HasPrefix(s, "limits."):
		return "is the name of a quota: use " + s[strings.IndexByte(s, '.')+1:] + ", which bounds what is requested"
	case strings.Contains(s, "/") && len(validation.IsQualifiedName(s)) == 0:
		return ""
	}
	return "is no resource that pods request: cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or one with a domain such as nvidia.com/gpu"
}

// QuantityOf returns the quantity one measure; 0 where there is none of it.
func (u ResourceUsage) QuantityOf(name string) int64 {
	for i := range u {
		if u[i].Name == name {
			return u[i].Quantity
		}
	}
	return 0
}

// IsSaturated reports whether a measure exceeds what can be counted, so that subtracting
// from it gives no usable result.
func (u ResourceUsage) IsSaturated() bool {
	return slices.ContainsFunc(u, func(m UsageMeasure) bool { return m.Quantity == math.MaxInt64 })
}

// AddTimes adds another usage so many times; negative times subtract. Nothing goes below 0.
func (u ResourceUsage) AddTimes(o ResourceUsage, times int64) ResourceUsage {
	if times == 0 || len(o) == 0 {
		return u
	}
	out := make(ResourceUsage, 0, len(u)+len(o))
	for len(u) > 0 || len(o) > 0 {
		switch {
		case len(o) == 0 || len(u) > 0 && u[0].Name < o[0].Name:
			out, u = append(out, u[0]), u[1:]
		case len(u) == 0 || o[0].Name < u[0].Name:
			out, o = append(out, UsageMeasure{o[0].Name, clampedSum(0, o[0].Quantity, times)}), o[1:]
		default:
			out, u, o = append(out, UsageMeasure{u[0].Name, clampedSum(u[0].Quantity, o[0].Quantity, times)}), u[1:], o[1:]
		}
	}
	return slices.DeleteFunc(out, func(m UsageMeasure) bool { return m.Quantity == 0 })
}

// MaxOf returns the maximum of both usages, measure by measure.
func (u ResourceUsage) MaxOf(o ResourceUsage) ResourceUsage {
	return u.AddTimes(o.SubtractUsage(u), 1)
}

// SubtractUsage returns what exceeds the other usage, measure by measure.
func (u ResourceUsage) SubtractUsage(o ResourceUsage) ResourceUsage { return u.AddTimes(o, -1) }

// clampedSum returns the sum of a and times as much as b, between 0 and MaxInt64.
func clampedSum(a, b, times int64) int64 {
	if times < 0 {
		return max(a-quantity.MultiplyCapped(b, -times), 0)
	}
	return quantity.AddCapped(a, quantity.MultiplyCapped(b, times))
}

// firstExceeded returns the first bound that a Bundle's usage exceeds in addition to the
// others', among the measures that grow.
func (u ResourceUsage) firstExceeded(others, ask, before ResourceUsage) (bound UsageMeasure, over bool) {
	for _, b := range u {
		if n := ask.QuantityOf(b.Name); n > before.QuantityOf(b.Name) && n > b.Quantity-min(others.QuantityOf(b.Name), b.Quantity) {
			return b, true
		}
	}
	return bound, false
}

// IsExceeded reports whether the bounds keep a Bundle from using ask instead of before, in
// addition to the others.
func (u ResourceUsage) IsExceeded(others, ask, before ResourceUsage) bool {
	_, over := u.firstExceeded(others, ask, before)
	return over
}

// countFitting returns how many times each fits in addition to what is used; Unbounded where
// no bound covers it.
func (u ResourceUsage) countFitting(used, each ResourceUsage) int64 {
	n := int64(Unbounded)
	for _, b := range u {
		if per := each.QuantityOf(b.Name); per > 0 {
			n = min(n, max(b.Quantity-min(used.QuantityOf(b.Name), b.Quantity), 0)/per)
		}
	}
	return n
}

// FormatQuantity formats an amount as people state it.
func (m UsageMeasure) FormatQuantity(n int64) string {
	switch {
	case m.Name == string(corev1.ResourceCPU):
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case m.Name == string(corev1.ResourceMemory) || m.Name == string(corev1.ResourceEphemeralStorage) || strings.HasPrefix(m.Name, corev1.ResourceHugePagesPrefix):
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return fmt.Sprint(n)
}

// FieldPath returns the path of the bound in a Cluster's spec.
func (m UsageMeasure) FieldPath() string {
	if m.Name == MeasureObjects || m.Name == MeasureReplicas {
		return "capacity." + m.Name
	}
	return "capacity.resources[" + m.Name + "]"
}

// Demand is what a content needs of each cluster that holds it. Read-only.
type Demand struct {
	// fixedUsage is its objects, and the pods of workloads that are not divided.
	fixedUsage ResourceUsage
	divided    []dividedDemand
	// minimumUsages are alternatives of what a newcomer must have free: the fixed usage, and
	// one replica of a divided workload that has any.
	minimumUsages []ResourceUsage
}

// dividedDemand is the demand of one divided workload.
type dividedDemand struct {
	key        string
	replicas   int64
	perReplica ResourceUsage
}

// DemandOf returns the demand of a content; nil has none. It fails where an item is no JSON
// object.
func DemandOf(content *atoll.Content) (*Demand, error) {
	d := &Demand{}
	if content == nil {
		content = &atoll.Content{}
	}
	d.fixedUsage = ResourceUsage(nil).AddTimes(ResourceUsage{{MeasureObjects, int64(len(content.Items))}}, 1)
	for i := range content.Items {
		item := &content.Items[i]
		var obj map[string]any
		if err := utiljson.Unmarshal(item.Object, &obj); err != nil {
			return nil, fmt.Errorf("%s is not an object: %w", item.Key, err)
		}
		u := &unstructured.Unstructured{Object: obj}
		n, sets := PodsOf(item, u)
		var each ResourceUsage
		for _, s := range sets {
			each = each.AddTimes(usageOfPod(s.Requests), s.Count)
		}
		if _, replicated := ReplicasOf(item, u); item.Divided && replicated {
			d.divided = append(d.divided, dividedDemand{key: item.Key.String(), replicas: max(n, 0), perReplica: each})
		} else {
			d.fixedUsage = d.fixedUsage.AddTimes(each, n)
		}
	}
	for i := range d.divided {
		if d.divided[i].replicas > 0 {
			d.minimumUsages = append(d.minimumUsages, d.fixedUsage.AddTimes(d.divided[i].perReplica, 1))
		}
	}
	if d.minimumUsages == nil {
		d.minimumUsages = []ResourceUsage{d.fixedUsage}
	}
	return d, nil
}

// usageOfPod is what one pod uses.
func usageOfPod(requests map[corev1.ResourceName]int64) ResourceUsage {
	out := make(ResourceUsage, 0, len(requests)+1)
	for name, n := range requests {
		out = append(out, UsageMeasure{string(name), max(n, 0)})
	}
	out = append(out, UsageMeasure{MeasureReplicas, 1})
	slices.SortFunc(out, func(a, b UsageMeasure) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// UsageFor returns the usage of a cluster whose row is assigned these replicas, by item key.
func (d *Demand) UsageFor(assigned map[string]int64) ResourceUsage {
	if d == nil {
		return nil
	}
	u := d.fixedUsage
	for i := range d.divided {
		if n := assigned[d.divided[i].key]; n > 0 {
			u = u.AddTimes(d.divided[i].perReplica, n)
		}
	}
	return u
}
