// Package changes decides what a commit changes on the hub.
//
// Contract: functions are pure. Only an object that the content dropped is removed, and only when all of this is
// true. The settings are those of the last attempt, and the commit descends from that of the last attempt.
// The Source created this very object, and the object holds no others. Nothing of the Source or its Repository
// changed since the check began. Every other object that the content lacks is kept, with the reason.
package changes

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	// SameSettings is true when the settings that decide which objects there are are those of the last attempt.
	SameSettings bool
	// Prune as the Source states it.
	Prune v1alpha1.SourcePrune
	// ApplyAll applies objects that have not changed, too.
	ApplyAll bool
	// Source that decides.
	Source *v1alpha1.Source
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

	source *v1alpha1.Source
}

// Decide returns what is to be done.
func Decide(in Input) Decision {
	d := Decision{source: in.Source}
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
	d.releasePolicies(d.source)
	return d
}

// KeepAll moves the removals to what is kept.
func (d *Decision) KeepAll(why atoll.Reason) {
	for _, o := range d.Remove {
		o.Kept = string(why)
		d.Keep = append(d.Keep, o)
	}
	d.Remove = nil
	d.releasePolicies(d.source)
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
	case o.UID == "":
		return atoll.ReasonAdopted
	case !in.SameSettings:
		return atoll.ReasonSettingsChanged
	}
	return ""
}

// History is the commits that decide whether a commit dropped what it lacks.
type History struct {
	// Applied in whole last, and Attempted last; empty when there is none.
	Applied, Attempted string
	// Now is the commit to apply.
	Now string
}

// Ancestors returns the commits that Now must descend from. Every object of the inventory that no reason keeps is of the
// attempted commit, or was left by a removal that waits since the applied one.
func (h History) Ancestors() (out []string) {
	for _, commit := range []string{h.Applied, h.Attempted} {
		if commit != "" && commit != h.Now && !slices.Contains(out, commit) {
			out = append(out, commit)
		}
	}
	return out
}

// IsUnknown reports whether no attempt is recorded, so that nothing can be dropped.
func (h History) IsUnknown() bool { return h.Attempted == "" }

// MayWait reports whether removals can wait for a comparison of commits that failed. The next check
// compares with two commits, so a third one would be forgotten.
func (h History) MayWait() bool { return h.Attempted == h.Applied || h.Attempted == h.Now }

// FindInterruption returns why a check may not go on, by what the Source and the Repository were when it began and
// are now; empty when it may. A nil object is gone.
func FindInterruption(source, sourceNow *v1alpha1.Source, repo, repoNow *v1alpha1.Repository) (atoll.Reason, string) {
	switch {
	case sourceNow == nil || sourceNow.UID != source.UID || sourceNow.DeletionTimestamp != nil:
		return atoll.ReasonSettingsChanged, "the Source is deleted"
	case repoNow == nil || repoNow.UID != repo.UID || repoNow.DeletionTimestamp != nil:
		return atoll.ReasonRepositoryMissing, "the Repository is deleted"
	case sourceNow.Spec.Suspend:
		return atoll.ReasonSuspended, "the Source is suspended"
	case repoNow.Spec.Suspend:
		return atoll.ReasonSuspended, "the Repository is suspended"
	case sourceNow.Generation != source.Generation:
		return atoll.ReasonSettingsChanged, "the Source changed during the check"
	case repoNow.Generation != repo.Generation:
		return atoll.ReasonSettingsChanged, "the Repository changed during the check"
	case !isSameAttempt(source, sourceNow):
		return atoll.ReasonSettingsChanged, "another check applied a commit during the check"
	}
	return "", ""
}

// isSameAttempt reports whether no other check applied anything for a Source in between.
func isSameAttempt(before, now *v1alpha1.Source) bool {
	return before.Status.AttemptedCommit == now.Status.AttemptedCommit && before.Status.Settings == now.Status.Settings
}

// CreatedUID returns the UID of an object that a Source created; empty for one that others made. recorded is the UID
// in the inventory, before the object before the Source applied it, or nil, and after the object afterwards.
func CreatedUID(recorded types.UID, before, after metav1.Object, manager string) types.UID {
	if before != nil {
		if before.GetUID() != recorded || after.GetUID() != recorded {
			return ""
		}
		return recorded
	}
	for _, m := range after.GetManagedFields() {
		if m.Manager != manager {
			return "" // another writer was faster
		}
	}
	return after.GetUID()
}

// FindOwner returns why an object that a commit dropped stays, by what the API has; empty when it is removed.
func FindOwner(o v1alpha1.SourceObject, existing metav1.Object, source, manager string) atoll.Reason {
	isManager := func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager }
	if o.UID == "" || existing.GetUID() != o.UID || existing.GetLabels()[v1alpha1.LabelSource] != source || !slices.ContainsFunc(existing.GetManagedFields(), isManager) {
		return atoll.ReasonOwnedElsewhere
	}
	// As Helm reads it.
	if strings.EqualFold(strings.TrimSpace(existing.GetAnnotations()["helm.sh/resource-policy"]), "keep") {
		return atoll.ReasonPolicyKeeps
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
