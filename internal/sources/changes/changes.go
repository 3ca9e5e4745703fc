// Package changes decides what a commit changes on the hub.
//
// Contract: Decide is pure. Only an object that the content dropped is removed, and only when all of this is true:
// the settings of the Source and the history of the branch are those of the inventory, the Source itself created
// the object, and the object holds no others. Every other object that the content lacks is kept, with
// the reason.
package changes

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Key identifies an object in any version of its API.
type Key struct{ Group, Kind, Namespace, Name string }

// KeyOf returns the key of an object of an inventory.
func KeyOf(o v1alpha1.SourceObject) Key {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		gv = schema.GroupVersion{Group: o.APIVersion}
	}
	return Key{gv.Group, o.Kind, o.Namespace, o.Name}
}

// ItemKey returns the key as templates have it.
func (k Key) ItemKey() atoll.ItemKey {
	return atoll.ItemKey{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
}

// Input of a decision.
type Input struct {
	// Wanted are the objects of the content, with their hashes.
	Wanted []v1alpha1.SourceObject
	// Inventory is what the Source applied before.
	Inventory []v1alpha1.SourceObject
	// SameSettings is true when the settings that decide which objects there are did not change.
	SameSettings bool
	// Prune as the Source states it.
	Prune v1alpha1.SourcePrune
	// ApplyAll applies objects that have not changed, too.
	ApplyAll bool
}

// Decision is what is to be done.
type Decision struct {
	// Apply are indexes of Wanted.
	Apply []int
	// Unchanged are indexes of Wanted that the inventory has with the same hash.
	Unchanged []int
	// Remove are objects of the inventory that the commit dropped.
	Remove []v1alpha1.SourceObject
	// Keep are objects of the inventory that the content lacks and that stay.
	Keep []v1alpha1.SourceObject
}

// Decide returns what is to be done.
func Decide(in Input) Decision {
	var d Decision
	before := make(map[Key]v1alpha1.SourceObject, len(in.Inventory))
	for _, o := range in.Inventory {
		before[KeyOf(o)] = o
	}
	for i, o := range in.Wanted {
		key := KeyOf(o)
		old, had := before[key]
		delete(before, key)
		if had && old.Hash == o.Hash && old.Kept == "" && !in.ApplyAll {
			d.Unchanged = append(d.Unchanged, i)
		} else {
			d.Apply = append(d.Apply, i)
		}
	}
	for _, o := range in.Inventory {
		if _, dropped := before[KeyOf(o)]; !dropped {
			continue
		}
		if why := reasonToKeep(o, in); why != "" {
			o.Kept = string(why)
			d.Keep = append(d.Keep, o)
		} else {
			d.Remove = append(d.Remove, o)
		}
	}
	return d
}

// KeepAll moves the removals to what is kept.
func (d *Decision) KeepAll(why atoll.Reason) {
	for _, o := range d.Remove {
		o.Kept = string(why)
		d.Keep = append(d.Keep, o)
	}
	d.Remove = nil
}

// holdsOthers are the kinds whose deletion deletes objects that others made.
var holdsOthers = []schema.GroupKind{{Kind: "Namespace"}, {Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}}

// reasonToKeep returns why an object stays that the content lacks; empty when it is removed.
func reasonToKeep(o v1alpha1.SourceObject, in Input) atoll.Reason {
	key := KeyOf(o)
	switch {
	case o.Kept != "":
		return atoll.Reason(o.Kept)
	case in.Prune == v1alpha1.PruneKeep:
		return atoll.ReasonPruneKeeps
	case slices.Contains(holdsOthers, schema.GroupKind{Group: key.Group, Kind: key.Kind}):
		return atoll.ReasonHoldsOthers
	case o.Adopted:
		return atoll.ReasonAdopted
	case !in.SameSettings:
		return atoll.ReasonSettingsChanged
	}
	return ""
}

// SortForApply returns the order in which objects are applied: what others need comes first.
func SortForApply(objects []v1alpha1.SourceObject, indexes []int) {
	slices.SortStableFunc(indexes, func(a, b int) int { return applyRank(objects[a]) - applyRank(objects[b]) })
}

func applyRank(o v1alpha1.SourceObject) int {
	switch {
	case o.Kind == "Namespace" && o.APIVersion == "v1":
		return 0
	case o.Kind == "CustomResourceDefinition":
		return 1
	case strings.HasPrefix(o.APIVersion, v1alpha1.GroupVersion.Group+"/"):
		return 2
	}
	return 3
}
