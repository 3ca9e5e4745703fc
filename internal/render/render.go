package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
	"atoll.dev/atoll/internal/interpret/script"
)

// PolicyPlacement stands in Provenance for replicas that the placement assigned.
const PolicyPlacement = "placement"

// byPlacement is the rule that stands for the placement.
var byPlacement = &atoll.Rule{Policy: PolicyPlacement}

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
	return Compile(content).Render(in)
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

func seal(r atoll.Rendered) atoll.Rendered {
	leave, err := json.Marshal(r.Leave)
	if err != nil {
		panic(fmt.Sprintf("render: a list of strings has JSON: %v", err))
	}
	r.Hash = atoll.Hash(r.Object, leave, []byte(r.Error))
	return r
}

// assign the cluster's share; stated is what the template says.
func (o *overriding) assign(assigned map[string]int64, stated int64, known *script.Interpreters) error {
	n, ok := assigned[o.item.Key.String()]
	if !ok {
		return errors.New("its replicas are divided, and the placement has assigned none to this cluster yet")
	}
	o.rule, o.overrider = byPlacement, ""
	if known.Revises(kindOf(o.obj)) {
		return o.revise(n, known)
	}
	path := replicasPath(o.obj)
	if path == nil {
		return fmt.Errorf("its replicas are divided, and nobody says how to set those of a %s: give a ResourceInterpreter with revise", o.item.Key.Kind)
	}
	if set, ok := o.handed(stated); ok && set == n {
		return nil // an override gave the cluster that share, and is named for it
	}
	return o.set(n, path)
}

// revise the replicas as a script says.
func (o *overriding) revise(n int64, known *script.Interpreters) error {
	made, err := known.Revise(&unstructured.Unstructured{Object: o.obj}, n)
	if err != nil {
		return err
	}
	if o.obj = made.Object; o.scripted == nil {
		o.noteAt("replicas", n)
	} else {
		o.note(n, o.scripted...)
	}
	return nil
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
	o.rule, o.overrider = byPlacement, ""
	return o.set(start, append(slices.Clone(ordinalsPath), "start"))
}

// autoscaled finds the objects whose replicas an autoscaler of the same content
// sets in each member.
func autoscaled(content *atoll.Content) map[atoll.ItemKey]bool {
	out := map[atoll.ItemKey]bool{}
	for _, item := range content.Items {
		if item.Key.Group != "autoscaling" || item.Key.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		hpa := unstructured.Unstructured{}
		if json.Unmarshal(item.Object, &hpa.Object) != nil {
			continue
		}
		if gk, name, ok := interpret.Scaled(&hpa); ok {
			out[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: item.Key.Namespace, Name: name}] = true
		}
	}
	return out
}

// leaveReplicas gives the list of fields that are the member's; scripted is where a script
// says that replicas are. The object keeps its replicas to start with only where they are
// this cluster's.
func leaveReplicas(obj map[string]any, scripted []string, own bool) []string {
	_, path, ok := interpret.Replicas(&unstructured.Unstructured{Object: obj})
	if scripted != nil {
		path = scripted
	} else if !ok || interpret.Custom(kindOf(obj).GroupKind()) {
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
