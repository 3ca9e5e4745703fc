package generate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// History is whether the commits that a generator reads follow those that the Sources come from.
type History int

// The histories of a generator.
const (
	// HistoryFollows: each commit is the one before, or descends from it. A generator without a Repository has it, too.
	HistoryFollows History = iota
	// HistoryUnknown: the commits are not compared yet.
	HistoryUnknown
	// HistoryRewritten: a commit does not descend from the one before, or the one before is not known.
	HistoryRewritten
)

// RemovalPause is how long a Source stays after its Cluster dropped it, so that labels that change back make and delete nothing.
const RemovalPause = 2 * time.Minute

// Input of a decision.
type Input struct {
	Set    *v1alpha1.SourceSet
	Result Result
	// Existing are the Sources of the namespace, by name.
	Existing map[string]*v1alpha1.Source
	// Barred are Clusters that exist and that the namespace may not place on.
	Barred map[string]bool
	// Histories by the index of the generator.
	Histories map[int]History
	// Now is the time of the decision.
	Now time.Time

	sameSettings bool
}

// Refusal is a Source that is not made, because another one has its name.
type Refusal struct {
	Made
	Reason  atoll.Reason
	Message string
}

// Change is a Source that is applied.
type Change struct {
	Made
	// IsNew is true for a Source that does not exist.
	IsNew bool
	// SetsBack is true where others changed fields that the template states.
	SetsBack bool
}

// Decision is what is to be done.
type Decision struct {
	// Apply are the Sources to make or to change.
	Apply []Change
	// Unchanged are the Sources that are as the template states them.
	Unchanged []Made
	// Refused are the Sources whose names others have.
	Refused []Refusal
	// Remove are the Sources to delete.
	Remove []v1alpha1.GeneratedSource
	// Paused are Sources whose Clusters dropped them for less than RemovalPause, with the time of it.
	Paused []v1alpha1.GeneratedSource
	// Wait are Sources whose removal waits for a comparison of commits.
	Wait []v1alpha1.GeneratedSource
	// Keep are the Sources that are no longer generated and stay, with the reason.
	Keep []v1alpha1.GeneratedSource
}

// Decide returns what is to be done.
func Decide(in Input) (d Decision) {
	before := map[string]v1alpha1.GeneratedSource{}
	for _, o := range in.Set.Status.Inventory {
		before[o.Name] = o
	}
	wanted, stays := map[string]bool{}, map[int32]bool{}
	in.sameSettings = in.Set.Status.Settings == DigestSettings(&in.Set.Spec)
	for _, m := range in.Result.Made {
		wanted[m.Name] = true
		old, had := before[m.Name]
		if had && old.Kept == "" && old.Generator == int32(m.Generator) {
			stays[old.Generator] = true
		}
		d.decideMade(in, m, old, had)
	}
	for _, o := range in.Set.Status.Inventory {
		if wanted[o.Name] || in.Existing[o.Name] == nil {
			continue // it is generated, or gone
		}
		d.decideDropped(in, o, reasonToKeep(o, in, stays))
	}
	return d
}

// decideDropped decides about one Source that is no longer generated. why is why it is kept; empty when it may be deleted.
func (d *Decision) decideDropped(in Input, o v1alpha1.GeneratedSource, why atoll.Reason) {
	if why != "" {
		o.Kept, o.DroppedTime = string(why), nil
		d.Keep = append(d.Keep, o)
		return
	}
	if o.Cluster != "" && o.DroppedTime == nil {
		o.DroppedTime = &metav1.Time{Time: in.Now.Truncate(time.Second)} // as the API stores it
	}
	switch {
	case o.DroppedTime != nil && in.Now.Before(o.DroppedTime.Add(RemovalPause)):
		d.Paused = append(d.Paused, o)
	case in.Histories[int(o.Generator)] == HistoryUnknown:
		d.Wait = append(d.Wait, o)
	default:
		d.Remove = append(d.Remove, o)
	}
}

// PauseEnd returns when the first paused removal may go on; zero for none.
func (d *Decision) PauseEnd() (end time.Time) {
	for _, o := range d.Paused {
		if at := o.DroppedTime.Add(RemovalPause); end.IsZero() || at.Before(end) {
			end = at
		}
	}
	return end
}

// decideMade decides about one Source that is generated. A Source of a person, or of another SourceSet, is never taken over.
func (d *Decision) decideMade(in Input, m Made, old v1alpha1.GeneratedSource, had bool) {
	existing := in.Existing[m.Name]
	switch {
	case existing == nil:
		d.Apply = append(d.Apply, Change{Made: m, IsNew: true})
	case existing.Labels[v1alpha1.LabelSourceSet] != in.Set.Name:
		d.Refused = append(d.Refused, Refusal{m, atoll.ReasonNameTaken, DescribeOwner(in.Set, existing)})
	case existing.DeletionTimestamp != nil:
		d.Refused = append(d.Refused, Refusal{m, atoll.ReasonNotApplied, fmt.Sprintf("Source %s is being deleted, and is made again when it is gone", m.Name)})
	case had && old.Hash == m.Hash && IsAsStated(m.Object, existing):
		d.Unchanged = append(d.Unchanged, m)
	default:
		d.Apply = append(d.Apply, Change{Made: m, SetsBack: had && old.Hash == m.Hash})
	}
}

// DescribeOwner returns the owners of a name that this SourceSet gives, too.
func DescribeOwner(set *v1alpha1.SourceSet, existing metav1.Object) string {
	owner := "no SourceSet, but a person or another client"
	if name := existing.GetLabels()[v1alpha1.LabelSourceSet]; name != "" {
		owner = "SourceSet " + name
	}
	return fmt.Sprintf("Source %s is of %s, and SourceSet %s gives the name, too; use another name on one side", existing.GetName(), owner, set.Name)
}

// reasonToKeep returns why a Source stays that is no longer generated; empty when it may be deleted.
func reasonToKeep(o v1alpha1.GeneratedSource, in Input, stays map[int32]bool) atoll.Reason {
	switch {
	case o.Kept != "":
		return atoll.Reason(o.Kept)
	case in.Set.Spec.Prune == v1alpha1.PruneKeep:
		return atoll.ReasonPruneKeeps
	case o.UID == "":
		return atoll.ReasonAdopted
	case in.Existing[o.Name].UID != o.UID || in.Existing[o.Name].Labels[v1alpha1.LabelSourceSet] != in.Set.Name:
		return atoll.ReasonOwnedElsewhere
	case !in.sameSettings:
		return atoll.ReasonSettingsChanged
	case slices.Contains(in.Result.Empty, int(o.Generator)):
		return atoll.ReasonGeneratorEmpty
	case in.Barred[o.Cluster]:
		return atoll.ReasonNotInBoundSet
	case !stays[o.Generator]:
		return atoll.ReasonEntriesReplaced
	case in.Histories[int(o.Generator)] == HistoryRewritten:
		return atoll.ReasonHistoryRewritten
	}
	return ""
}

// FindInterruption returns why no Source may be deleted, by what the SourceSet was when it was read and is now; empty when it may.
// A nil SourceSet is gone.
func FindInterruption(before, now *v1alpha1.SourceSet) string {
	switch {
	case now == nil || now.UID != before.UID || now.DeletionTimestamp != nil:
		return "the SourceSet is deleted"
	case now.Spec.Suspend:
		return "the SourceSet is suspended"
	case now.Generation != before.Generation:
		return "the SourceSet has changed"
	}
	return ""
}

// FindOwner returns why a Source that is no longer generated stays, by what the API has; empty when it is deleted.
func FindOwner(o v1alpha1.GeneratedSource, existing metav1.Object, set string) atoll.Reason {
	if o.UID == "" || existing.GetUID() != o.UID || existing.GetLabels()[v1alpha1.LabelSourceSet] != set {
		return atoll.ReasonOwnedElsewhere
	}
	return ""
}

// MarkCreated states in the form of a Source that the SourceSet created it, so that the Source itself shows its owner.
func MarkCreated(form *unstructured.Unstructured, set *v1alpha1.SourceSet) {
	annotations := form.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationSourceSetUID] = string(set.UID)
	form.SetAnnotations(annotations)
}

// IsMarkedCreated reports whether a Source shows that the SourceSet created it. A copy that another writer made has the annotation from
// another field manager.
func IsMarkedCreated(existing metav1.Object, set *v1alpha1.SourceSet, manager string) bool {
	if set.UID == "" || existing.GetAnnotations()[v1alpha1.AnnotationSourceSetUID] != string(set.UID) {
		return false
	}
	field := []byte(`"f:` + v1alpha1.AnnotationSourceSetUID + `"`)
	return slices.ContainsFunc(existing.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == manager && m.Operation == metav1.ManagedFieldsOperationApply && m.FieldsV1 != nil && bytes.Contains(m.FieldsV1.GetRawBytes(), field)
	})
}

// Bounds of an inventory: the most Sources in it, and the most bytes that it takes with the notes of field managers about it. All Sources
// that a SourceSet makes fit.
const (
	MaxInventory      = 2000
	MaxInventoryBytes = 656 << 10
)

// NewInventory returns the inventory of Sources that are on the hub, by name. uids are those of Sources that the SourceSet created, by
// name, and stay the Sources that are no longer generated. A name is in it once. Sources over a bound stay on the hub, and are not listed.
func NewInventory(made []Made, uids map[string]types.UID, stay ...[]v1alpha1.GeneratedSource) []v1alpha1.GeneratedSource {
	var out []v1alpha1.GeneratedSource
	listed, left := map[string]bool{}, MaxInventoryBytes
	add := func(o v1alpha1.GeneratedSource) {
		if size := inventoryBytes(o); !listed[o.Name] && len(out) < MaxInventory && size <= left {
			listed[o.Name], out, left = true, append(out, o), left-size
		}
	}
	for _, m := range made {
		add(v1alpha1.GeneratedSource{Name: m.Name, Generator: int32(m.Generator), Cluster: m.Cluster, Hash: m.Hash, UID: uids[m.Name]})
	}
	for _, o := range slices.Concat(stay...) {
		add(o)
	}
	slices.SortFunc(out, func(a, b v1alpha1.GeneratedSource) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// inventoryBytes returns about how many bytes an entry takes: its values, and its name again with the names of its fields in managedFields.
func inventoryBytes(o v1alpha1.GeneratedSource) int {
	const fieldNames = 240
	return 2*len(o.Name) + len(o.UID) + len(o.Cluster) + len(o.Hash) + len(o.Kept) + fieldNames
}
