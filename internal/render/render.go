package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// PolicyPlacement stands in Provenance for replicas that the placement assigned.
const PolicyPlacement = "placement"

// Input is what tells one row's items from another's.
type Input struct {
	// Rules as the function Rules gave them for the row's cluster.
	Rules []int
	// Cluster is the row's, of which valueFrom takes values. Nil: there are none to take.
	Cluster *atoll.ClusterView
	// Assigned replicas by item key, for items that are divided.
	Assigned map[string]int64
	// NotYet has, by key, the items that rules keep out of the cluster and that stay until
	// somebody confirms it.
	NotYet map[string]int64
	// Ordinals are where the ranges of StatefulSets begin, by item key, for those
	// whose ordinals are ranged.
	Ordinals map[string]int64

	values valueSet
}

// Render gives the content's items as one member gets them, in the content's
// order, and which rule set which field; those that are held back, or kept out
// of the cluster (NotHere), are left out. An item to which a rule does not apply has
// an Error instead of an object; the others are as if it had none.
func Render(content *atoll.Content, in Input) ([]atoll.Rendered, []Provenance) {
	matching := map[atoll.ItemKey][]*atoll.Rule{}
	var texts []string
	for _, i := range in.Rules {
		r := &content.Rules[i]
		texts = append(texts, expressions(&r.Overriders)...)
		for _, key := range r.Items {
			matching[key] = append(matching[key], r)
		}
	}
	if in.Cluster != nil && len(texts) > 0 {
		in.values, _ = valuesOf(texts, in.Cluster)
	}
	scaled := autoscaled(content)
	var atomic *atoll.Rule
	out := make([]atoll.Rendered, 0, len(content.Items))
	var notes []Provenance
	kept := unwanted(content, in.Rules)
	var absent []*atoll.Item
	for i := range content.Items {
		item := &content.Items[i]
		if item.State == atoll.ItemRemovalHeld {
			continue
		}
		if r := kept[item.Key]; r != nil && in.out(item) {
			absent = append(absent, item)
			notes = append(notes, Provenance{Item: item.Key, Policy: r.Policy, Rule: r.Index, Overrider: "notHere", Value: true})
			continue
		}
		r, n, failed := renderItem(item, matching[item.Key], in, scaled[item.Key])
		if failed != nil && failed.Atomic && atomic == nil {
			atomic = failed
		}
		out = append(out, r)
		notes = append(notes, n...)
	}
	if atomic != nil {
		for _, item := range absent { // which stays as it is, like all others
			out = append(out, atoll.Rendered{Key: item.Key, APIVersion: item.APIVersion, UID: item.UID, Dependency: item.Dependency})
		}
		slices.SortStableFunc(out, func(a, b atoll.Rendered) int { return a.Key.Compare(b.Key) })
		return stopped(out, atomic), nil
	}
	return out, notes
}

// stopped gives the items where an atomic rule does not apply to one of them.
func stopped(items []atoll.Rendered, r *atoll.Rule) []atoll.Rendered {
	for i := range items {
		if it := &items[i]; it.Error == "" {
			it.Object, it.Leave = nil, nil
			it.Error = fmt.Sprintf("%s rule %d, which is atomic, does not apply to another object of the Bundle", r.Policy, r.Index)
			*it = seal(*it)
		}
	}
	return items
}

func renderItem(item *atoll.Item, rules []*atoll.Rule, in Input, scaled bool) (r atoll.Rendered, notes []Provenance, failed *atoll.Rule) {
	r = atoll.Rendered{Key: item.Key, APIVersion: item.APIVersion, UID: item.UID, Dependency: item.Dependency}
	if len(rules) == 0 && !item.Divided && !scaled {
		r.Object = item.Object
		return seal(r), nil, nil
	}
	o := &overriding{item: item, values: in.values}
	err := utiljson.Unmarshal(item.Object, &o.obj)
	if err != nil {
		err = fmt.Errorf("content is not an object: %w", err)
	}
	start, ranged := in.Ordinals[item.Key.String()]
	replicas := int64(0)
	if item.ReplicaOverrides && err == nil {
		replicas, _, _ = interpret.Replicas(&unstructured.Unstructured{Object: o.obj})
	}
	var stated any
	if ranged {
		v, _ := interpret.Lookup(o.obj, ordinalsPath)
		stated = runtime.DeepCopyJSONValue(v)
	}
	for _, rule := range rules {
		if err == nil {
			if err = o.apply(rule); err != nil {
				failed = rule
			}
		}
	}
	_, assigned := in.Assigned[item.Key.String()]
	if err == nil && item.Divided && (assigned || !scaled) {
		err = o.assign(in.Assigned, replicas)
	}
	if err == nil && item.Divided && ranged {
		err = o.begin(start, stated)
	}
	if err == nil && scaled {
		r.Leave = leaveReplicas(o.obj, assigned || !item.Divided)
	}
	if err == nil {
		r.Object, err = json.Marshal(o.obj)
	}
	if err != nil {
		r.Object, r.Leave, r.Error = nil, nil, err.Error()
		return seal(r), nil, failed
	}
	return seal(r), o.notes, nil
}

func seal(r atoll.Rendered) atoll.Rendered {
	leave, err := json.Marshal(r.Leave)
	if err != nil {
		panic(fmt.Sprintf("render: a list of strings has JSON: %v", err))
	}
	r.Hash = atoll.Hash(r.Object, leave, []byte(r.Error))
	return r
}

// assign the cluster's share; stated is what the template says.
func (o *overriding) assign(assigned map[string]int64, stated int64) error {
	n, ok := assigned[o.item.Key.String()]
	if !ok {
		return errors.New("its replicas are divided, and the placement has assigned none to this cluster yet")
	}
	o.rule, o.overrider = &atoll.Rule{Policy: PolicyPlacement}, ""
	path := replicasPath(o.obj)
	if path == nil {
		return fmt.Errorf("a %s has no replicas to divide", o.item.Key.Kind)
	}
	if set, ok := o.handed(stated); ok && set == n {
		return nil // an override gave the cluster that share, and is named for it
	}
	return o.set(n, path)
}

var ordinalsPath = []string{"spec", "ordinals"}

// begin the range of ordinals of a StatefulSet there. stated is what its template says of
// ordinals.
func (o *overriding) begin(start int64, stated any) error {
	if now, _ := interpret.Lookup(o.obj, ordinalsPath); !reflect.DeepEqual(now, stated) {
		return errors.New("the placement ranges this object's ordinals, so that no override can set them")
	}
	spec := child(o.obj, "spec")
	if child(spec, "ordinals") == nil {
		spec["ordinals"] = map[string]any{}
	}
	o.rule = &atoll.Rule{Policy: PolicyPlacement}
	return o.set(start, append(slices.Clone(ordinalsPath), "start"))
}

// autoscaled finds the objects whose replicas an autoscaler of the same content
// sets in each member.
func autoscaled(content *atoll.Content) map[atoll.ItemKey]bool {
	var out map[atoll.ItemKey]bool
	for _, item := range content.Items {
		if item.Key.Group != "autoscaling" || item.Key.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		var hpa struct {
			Spec struct {
				ScaleTargetRef struct{ APIVersion, Kind, Name string }
			}
		}
		if json.Unmarshal(item.Object, &hpa) != nil {
			continue
		}
		ref := hpa.Spec.ScaleTargetRef
		target := unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind}}
		gk := target.GroupVersionKind().GroupKind()
		if out == nil {
			out = map[atoll.ItemKey]bool{}
		}
		out[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: item.Key.Namespace, Name: ref.Name}] = true
	}
	return out
}

// leaveReplicas gives the list of fields that are the member's. The object keeps its
// replicas to start with only where they are this cluster's.
func leaveReplicas(obj map[string]any, own bool) []string {
	_, path, ok := interpret.Replicas(&unstructured.Unstructured{Object: obj})
	if !ok {
		path = []string{"spec", "replicas"}
		if _, ok := interpret.Lookup(obj, path); !ok {
			return nil
		}
	}
	if parent, ok := interpret.Lookup(obj, path[:len(path)-1]); ok && !own {
		if m, ok := parent.(map[string]any); ok {
			delete(m, path[len(path)-1])
		}
	}
	return []string{pointerTo(path...)}
}
