package overrides

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/userfields"
)

// PolicyPlacement is the Policy in Provenance for replicas that the placement assigned.
const PolicyPlacement = "placement"

// PolicyServedVersions is the Policy in Provenance for an API version that the cluster serves in place of the template's.
const PolicyServedVersions = "servedVersions"

// placementRule stands for the placement in Provenance.
var placementRule = &atoll.Rule{Policy: PolicyPlacement}

// AssignReplicas sets the cluster's share of replicas. stated is what the template states.
func (o *ObjectPatcher) AssignReplicas(assigned map[string]int64, stated int64, known *script.Interpreters) error {
	n, ok := assigned[o.Item.Key.String()]
	if !ok {
		return errors.New("its replicas are divided, and the placement has assigned none to this cluster yet")
	}
	o.rule, o.overrider = placementRule, ""
	if known.RevisesReplicas(objectKind(o.Object)) {
		return o.reviseReplicas(n, known)
	}
	path := podCountPath(o.Object)
	if path == nil {
		return fmt.Errorf("its replicas are divided, and no interpreter sets those of a %s: give a ResourceInterpreter with revise", o.Item.Key.Kind)
	}
	if set, ok := o.OverriddenReplicas(stated); ok && set == n {
		return nil // an override set that share already, and stays its Provenance
	}
	return o.setField(n, path)
}

// reviseReplicas sets the replicas by a script.
func (o *ObjectPatcher) reviseReplicas(n int64, known *script.Interpreters) error {
	made, err := known.ReviseReplicas(&unstructured.Unstructured{Object: o.Object}, n)
	if err != nil {
		return err
	}
	if o.Object = made.Object; o.ScriptedPath == nil {
		o.noteChangeAt("replicas", n)
	} else {
		o.noteChange(n, o.ScriptedPath...)
	}
	return nil
}

var ordinalsPath = []string{"spec", "ordinals"}

// SetOrdinalsStart sets where the ordinals of a StatefulSet start. stated is what its template
// states of ordinals.
func (o *ObjectPatcher) SetOrdinalsStart(start int64, stated any) error {
	if now, _ := kinds.LookupPath(o.Object, ordinalsPath); !reflect.DeepEqual(now, stated) {
		return errors.New("the placement ranges this object's ordinals, so that no override can set them")
	}
	spec := userfields.ChildMap(o.Object, "spec")
	if userfields.ChildMap(spec, "ordinals") == nil {
		spec["ordinals"] = map[string]any{}
	}
	o.rule, o.overrider = placementRule, ""
	return o.setField(start, append(slices.Clone(ordinalsPath), "start"))
}

// OverriddenReplicas returns whether rules have set the object's replicas, and to what. stated is
// what its template states.
func (o *ObjectPatcher) OverriddenReplicas(stated int64) (n int64, ok bool) {
	n, path, has := kinds.ReplicasOf(&unstructured.Unstructured{Object: o.Object})
	if !has || !o.Item.ReplicaOverrides {
		return 0, false
	}
	at := jsonpointer.FormatPointer(path...)
	for i := range o.Notes {
		ok = ok || o.Notes[i].Path == at && o.Notes[i].Policy != PolicyPlacement
	}
	return n, ok || n != stated
}

// hasPlacementReplicas returns whether only the placement may set the object's replicas.
func (o *ObjectPatcher) hasPlacementReplicas() bool {
	return o.Item.Divided && !o.Item.ReplicaOverrides
}

// placementReplicasPath is the path of replicas that only the placement may set; nil: there are
// none.
func (o *ObjectPatcher) placementReplicasPath() []string {
	switch {
	case !o.hasPlacementReplicas():
		return nil
	case o.ScriptedPath != nil:
		return o.ScriptedPath
	}
	return podCountPath(o.Object)
}

// StatedPlacementFields returns the replicas and a copy of the ordinals that an object states before
// rules are applied. AssignReplicas and SetOrdinalsStart take them.
func StatedPlacementFields(obj map[string]any) (replicas int64, ordinals any) {
	replicas, _, _ = kinds.ReplicasOf(&unstructured.Unstructured{Object: obj})
	ordinals, _ = kinds.LookupPath(obj, ordinalsPath)
	return replicas, runtime.DeepCopyJSONValue(ordinals)
}
