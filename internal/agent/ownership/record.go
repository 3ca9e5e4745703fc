package ownership

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// State of one Bundle's claim on an object.
type State string

// The states of a claim.
const (
	// Wanted: the Bundle's manifest has the item.
	Wanted State = "Wanted"
	// Kept: the manifest lacks the item, and no tombstone has a reason.
	Kept State = "Kept"
	// Parked: tombstoned here because another Bundle holds the item; that
	// Bundle's manifest has not arrived.
	Parked State = "Parked"
	// Leaving: tombstoned, and the object goes unless another Bundle claims it.
	Leaving State = "Leaving"
)

// Claim of one Bundle on an object.
type Claim struct {
	State State `json:"s"`
	// Template UID that the Bundle means.
	Template string `json:"t,omitempty"`
	// Dependency: the Bundle needs the object, and no user placed it.
	Dependency bool `json:"d,omitempty"`
	// MovedTo, when Parked: the Bundles that may take the object over.
	MovedTo []string `json:"m,omitempty"`
	// Orphan, when Leaving: release the object instead of deleting it.
	Orphan bool `json:"o,omitempty"`
	// Last, when Leaving: the object is deleted after all others of the Bundle that leave.
	Last bool `json:"l,omitempty"`
	// Wave in which the object is applied, and before whose predecessors it is deleted.
	Wave int32 `json:"wv,omitempty"`
	// Noted, with Orphan: the object is to be known when it comes back.
	Noted bool `json:"b,omitempty"`
	// Account is the ServiceAccount, as NAMESPACE/NAME, that the Bundle's last item names for writes and removals of
	// the object; empty: none.
	Account string `json:"sa,omitempty"`
	// Observed: the Bundle's last item that could be rendered is only observed, so that nothing is written or replaced
	// while the next one fails.
	Observed bool `json:"ob,omitempty"`
}

func (c Claim) isLive() bool { return c.State == Wanted || c.State == Kept }

// Record is what the agent stores about one object in the member.
type Record struct {
	Key        atoll.ItemKey `json:"k"`
	APIVersion string        `json:"v,omitempty"`
	// UID in the member; empty while the object is intended, or gone.
	UID string `json:"u,omitempty"`
	// Template that the object was made for; empty when UID is.
	Template string `json:"t,omitempty"`
	// Owner is the Bundle whose content the object has.
	Owner  string           `json:"w,omitempty"`
	Claims map[string]Claim `json:"c,omitempty"`
	// Applied is the hash of the item that was applied last, Label the Bundle
	// UID that it carried, Owned a hash over the fields that were ours after it.
	Applied string `json:"a,omitempty"`
	Label   string `json:"l,omitempty"`
	Owned   string `json:"f,omitempty"`
	// Left lists the JSON Pointers of fields that the last apply left to the member.
	Left []string `json:"e,omitempty"`
	// Adopted: the object existed before Atoll, which therefore never deletes it.
	Adopted bool `json:"p,omitempty"`
	// Chosen: some claim was more than a dependency.
	Chosen bool `json:"h,omitempty"`
	// Ran is the template UID for which a run-to-completion object was made once, or by a rule of which the
	// object ran to completion.
	Ran string `json:"r,omitempty"`
	// RanHash is the content that was applied then; empty: not known.
	RanHash string `json:"rh,omitempty"`
	// FinishedAt is the Unix second since which the object is finished, where its item states that it is deleted after a
	// time; 0: it is not finished, or its item does not state that.
	FinishedAt int64 `json:"fi,omitempty"`
	// Going: the deletion of a run-to-completion object was requested. Its absence then does not
	// mean that it may not run again.
	Going bool `json:"g,omitempty"`
	// Hook is the last run of the object as a hook; nil: it did not run as one.
	Hook *HookRun `json:"hk,omitempty"`
	// Last is the last report of a run-to-completion object that is gone.
	Last *atoll.ItemStatus `json:"i,omitempty"`
	// DriftID is the ID under which the drift of DriftHash is reported, while a person may approve its
	// correction; empty: there is no such drift.
	DriftID   string `json:"di,omitempty"`
	DriftHash string `json:"dh,omitempty"`
	// Implicit: a namespace that was made because something placed needed it.
	// Doomed: its namespace on the hub was deleted.
	Implicit bool `json:"n,omitempty"`
	Doomed   bool `json:"x,omitempty"`
	// Account, with Implicit, is the ServiceAccount that had the right to create the namespace; empty: none was named.
	Account string `json:"sa,omitempty"`
	// SetClaims, with Doomed, are the UIDs of volume claims in the namespace that StatefulSets made which were deleted
	// with the namespace. They go along with it.
	SetClaims []string `json:"sc,omitempty"`
	// Parting: the agent leaves the member, and the namespace is deleted if nothing foreign is in
	// it. It is not stored, and ends with the session in which the hub ordered it.
	Parting bool `json:"-"`
}

// clone returns a copy for readers outside the Book's lock.
func (r *Record) clone() Record {
	c := *r
	c.Claims = maps.Clone(r.Claims)
	if r.Hook != nil {
		run := *r.Hook
		c.Hook = &run
	}
	c.Left, c.SetClaims = slices.Clone(r.Left), slices.Clone(r.SetClaims)
	return c
}

// LabelTemplateUID is on every object that the agent applied in a member: the UID
// of the template that it was made for, so that an object which an interrupted
// apply made is known for what it is.
const LabelTemplateUID = "atoll.dev/template-uid"

// LabelAdopted is on every object that was there before Atoll, so that it is known
// for one also when the record of it is lost.
const LabelAdopted = "atoll.dev/adopted"

// AnnotationLeftBehind is on an object that Atoll made and left in the member because its deletion
// was not ordered (a volume claim, a definition or a namespace that was only a dependency), or
// because the cluster left the fleet. Its value is the UID of the template. When the same template
// returns, the object is adopted with its content; for another template, only if it has that
// template's content.
const AnnotationLeftBehind = "atoll.dev/left-behind"

// CanReadoptLeftBehind reports whether an object that was left behind for a template is what an item of that
// key and template means. A definition that was created again on the hub means the same kind; a
// volume that was created again does not mean the old one's data.
func CanReadoptLeftBehind(key atoll.ItemKey, leftBehind, template string) bool {
	return leftBehind != "" && (leftBehind == template || IsCRD(key))
}

// LeavesBehind reports whether releasing leaves an object that Atoll created and only keeps. It
// is false for objects that existed before, and for those that users orphaned.
func (r *Record) LeavesBehind() bool {
	for _, c := range r.Claims {
		if c.Orphan && !c.Noted {
			return false
		}
	}
	return !r.Adopted && r.Template != ""
}

// RunsOnce reports whether objects of the key's kind run to completion, so that
// one made for a template is never made a second time for it.
func RunsOnce(key atoll.ItemKey) bool {
	return kinds.RunsOnce(schema.GroupKind{Group: key.Group, Kind: key.Kind})
}

// HasRun reports whether an object that runs to completion was made for the item and is not to
// be made again for the content of that hash; empty: for any. An edit of a finished object starts another run, but
// not of a Job or a Pod, whose spec cannot be edited.
func (r *Record) HasRun(it *atoll.RenderedItem, hash string) bool {
	return r.hasRunTemplate(it.UID, hash, it.StatesCompletion())
}

// hasRunTemplate is HasRun for an item of the template. byRule: a rule defines when its object has run to completion.
func (r *Record) hasRunTemplate(template, hash string, byRule bool) bool {
	once := RunsOnce(r.Key)
	if !once && !byRule || r.Ran != template {
		return false
	}
	again := !once || kinds.RunsAgainOnEdit(schema.GroupKind{Group: r.Key.Group, Kind: r.Key.Kind})
	return !again || hash == "" || r.RanHash == "" || r.RanHash == hash
}

// IsCRD reports whether the key is a CustomResourceDefinition's.
func IsCRD(key atoll.ItemKey) bool {
	return key.Group == "apiextensions.k8s.io" && key.Kind == "CustomResourceDefinition"
}

// DeletionLosesDataOrDependents reports whether deleting an object of the key's kind takes data or
// other objects along, so that it never goes as a mere dependency.
func DeletionLosesDataOrDependents(key atoll.ItemKey) bool {
	volume := key.Group == "" && (key.Kind == "PersistentVolumeClaim" || key.Kind == "PersistentVolume")
	return volume || key.IsNamespace() || IsCRD(key)
}
