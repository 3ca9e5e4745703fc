package atoll

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
)

// ItemKey names an object whatever its API version.
type ItemKey struct {
	Group     string
	Kind      string
	Namespace string // empty for cluster-scoped kinds
	Name      string
}

// String gives "group/Kind/namespace/name"; empty parts stay empty, so that the
// core group begins with "/" and cluster-scoped kinds have "//".
func (k ItemKey) String() string {
	return k.Group + "/" + k.Kind + "/" + k.Namespace + "/" + k.Name
}

// IsSecret reports whether the key names a Secret: a user that may read a Bundle may not always
// list Secrets, so that messages name none.
func (k ItemKey) IsSecret() bool { return k.Group == "" && k.Kind == "Secret" }

// IsNamespace reports whether the key names a Namespace.
func (k ItemKey) IsNamespace() bool { return k.Group == "" && k.Kind == "Namespace" }

// NamespaceKey returns the key of a Namespace.
func NamespaceKey(name string) ItemKey { return ItemKey{Kind: "Namespace", Name: name} }

// IsInGroupOf reports whether the API version, such as "apps/v1", is of the key's group.
func (k ItemKey) IsInGroupOf(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	return group == k.Group
}

// MarshalText gives String, so that keys can be keys of JSON maps.
func (k ItemKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *ItemKey) UnmarshalText(b []byte) error {
	p, err := ParseItemKey(string(b))
	if err == nil {
		*k = p
	}
	return err
}

// ParseItemKey reads what String wrote.
func ParseItemKey(s string) (ItemKey, error) {
	group, rest, _ := strings.Cut(s, "/")
	kind, rest, _ := strings.Cut(rest, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	if kind == "" || name == "" {
		return ItemKey{}, fmt.Errorf("item key %q is not group/Kind/namespace/name", s)
	}
	return ItemKey{group, kind, namespace, name}, nil
}

// Item is one template inside a Bundle's content.
type Item struct {
	Key        ItemKey `json:"key"`
	APIVersion string  `json:"apiVersion"`
	// UID of the template on the hub: it distinguishes a re-created object from its
	// predecessor.
	UID string `json:"uid"`
	// Object as JSON: only fields that a user stated, what the hub set is pruned.
	Object json.RawMessage `json:"object"`
	// Hash of Object.
	Hash string `json:"hash"`
	// Dependency: not chosen by the policy, but needed by an item that is.
	Dependency bool `json:"dependency,omitempty"`
	// Divided: the row's assigned replicas replace the object's own.
	Divided bool `json:"divided,omitempty"`
	// ReplicaKindsVersion of the kinds whose replicas the hub could read when the item came or its template was last
	// edited, so that a newer hub divides nothing by itself that an older one did not. 0:
	// those of Kubernetes itself. 1 (CurrentReplicaKinds): those that package interpret names.
	ReplicaKindsVersion int `json:"kinds,omitempty"`
	// VersionChoice of the hub when the item came or its template was last edited, so that a newer hub sends nothing
	// by itself to clusters that serve the kind in another version. 0: the item has its own version everywhere.
	// 1 (CurrentVersionChoice): the versions that package manifest chooses.
	VersionChoice int `json:"versions,omitempty"`
	// ReplicaOverrides, with Divided: overrides may set a cluster's share.
	ReplicaOverrides bool `json:"replicaOverrides,omitempty"`
	// SourceFingerprint is the fingerprint of the template's user intent that Object was pruned
	// from. While it is equal, Object is not pruned again, so that a hub with other API
	// defaults changes nothing. It is no part of the content's identity.
	SourceFingerprint string `json:"source,omitempty"`
	// State is why an item is frozen at this content; empty is the normal case.
	State ItemState `json:"state,omitempty"`
	// Interpreted is what ResourceInterpreters answered of the template; nil where they
	// answered nothing.
	Interpreted *InterpreterAnswers `json:"interpreted,omitempty"`
	// RecallNote, with ItemRemovalHeld, is the note of the template's annotation about its
	// deletion; empty for a dependency that only such items need.
	RecallNote string `json:"recalled,omitempty"`
	// RemovalCause, with ItemUnconfirmed, is what takes the item out once a person has confirmed it.
	RemovalCause TombstoneCause `json:"removalCause,omitempty"`
	// RemovalRevision, with ItemUnconfirmed, is the number of the Revision since which the removal waits.
	RemovalRevision int64 `json:"removalRevision,omitempty"`
	// Treatment in members; nil: as all others.
	Treatment *Treatment `json:"treatment,omitempty"`
}

// CurrentReplicaKinds is what items of custom kinds have that state replicas to share out.
const CurrentReplicaKinds = 1

// CurrentVersionChoice is what items have that may go to a cluster in another API version.
const CurrentVersionChoice = 1

// ItemState of an item that does not simply follow its template.
type ItemState string

// The item states.
const (
	// ItemUnclaimed: the policy or annotation that chose it no longer does.
	ItemUnclaimed ItemState = "Unclaimed"
	// ItemUnaccounted: the template disappeared without a user's deletion.
	ItemUnaccounted ItemState = "Unaccounted"
	// ItemUnreferenced: a dependency that its interpreter, or its own labels, do not mean any
	// more, though no user edited or deleted what it came along with.
	ItemUnreferenced ItemState = "Unnamed"
	// ItemRemovalHeld: members recorded that it was removed before the hub was restored. It is
	// sent to no cluster, and stays where it is, until a person decides.
	ItemRemovalHeld ItemState = "RemovalHeld"
	// ItemUnconfirmed: its removal waits for a confirmation, as its treatment states. Clusters keep it
	// as it was last sent.
	ItemUnconfirmed ItemState = "Unconfirmed"
)

// Tombstone takes one item out of members.
type Tombstone struct {
	Key ItemKey `json:"key"`
	// UID of the template that was taken out.
	UID string `json:"uid"`
	// Cause is the user's act.
	Cause TombstoneCause `json:"cause"`
	// Orphan leaves the object in the member and only releases it.
	Orphan bool `json:"orphan,omitempty"`
	// Last: the member removes the object after all others of the Bundle that it removes.
	Last bool `json:"last,omitempty"`
	// RemovalHook: a user deleted the template of a hook that runs in removals. Only contents have it.
	RemovalHook bool `json:"removalHook,omitempty"`
	// MovedTo lists the UIDs of other Bundles that hold the item now: a member
	// with a row of one of them keeps the object for it.
	MovedTo []string `json:"movedTo,omitempty"`
	// Finalizers were sent with the item, and the template that is being deleted still has
	// them. Only contents have them, never a manifest.
	Finalizers []string `json:"finalizers,omitempty"`
	// ReleasedFinalizers were sent with the item, and were removed from the template while it
	// is being deleted. Members remove them from the object that they delete.
	ReleasedFinalizers []string `json:"releasedFinalizers,omitempty"`
}

// TombstoneCause is the user's act behind a tombstone.
type TombstoneCause string

// The causes.
const (
	// CauseDeleted: a user deleted the template.
	CauseDeleted TombstoneCause = "Deleted"
	// CauseMoved: another Bundle holds the item now.
	CauseMoved TombstoneCause = "Moved"
	// CauseUnused: the last item that needed the dependency went or stopped needing it.
	CauseUnused TombstoneCause = "Unused"
	// CauseHubOnly: a user stated that the object stays on the hub.
	CauseHubOnly TombstoneCause = "HubOnly"
	// CauseExcluded: an override rule excludes the item from the cluster. Only manifests have
	// such tombstones, never a content.
	CauseExcluded TombstoneCause = "NotHere"
)

// Rule is one override rule that matches items of the content, in the order in
// which the content lists it.
type Rule struct {
	// Policy that states it: "ClusterOverridePolicy/name" or "OverridePolicy/ns/name".
	Policy string `json:"policy"`
	// Index in the policy's overrideRules.
	Index int `json:"index"`
	// Target clusters; nil: all.
	Target *v1alpha1.ClusterTarget `json:"target,omitempty"`
	// First: of the rules of its policy, only the first one that targets a cluster applies there.
	First bool `json:"first,omitempty"`
	// Description as the rule states it.
	Description string `json:"description,omitempty"`
	// Items that the rule's policy selects.
	Items []ItemKey `json:"items"`
	// Overriders of the rule.
	Overriders v1alpha1.Overriders `json:"overriders"`
	// Semantics in which the overriders are rendered, so that a newer hub does not render
	// them otherwise. 0: labelsOverrider and annotationsOverrider add only keys that are
	// absent, and what is merged or set above a divided object's replicas is not looked
	// at. 1: they leave no empty map of labels or annotations, into which a later overrider of
	// the object could add. 2 (CurrentRuleSemantics): as api/v1alpha1 defines. 3 (FirstRuleSemantics): the
	// same of a rule with First, which older hubs do not support. A higher one is of a newer hub, and the
	// rule stops its objects.
	Semantics int `json:"meaning,omitempty"`
	// OnMissing and Atomic as the rule states them.
	OnMissing v1alpha1.OnMissing `json:"onMissing,omitempty"`
	Atomic    bool               `json:"atomic,omitempty"`
	// Deferred: an edit of the policy alone moves no row that is there.
	Deferred bool `json:"later,omitempty"`
}

// CurrentRuleSemantics is the meaning of rules that are new or were edited; a rule that stays as it
// was keeps its own.
const CurrentRuleSemantics = 2

// FirstRuleSemantics is that of rules with First.
const FirstRuleSemantics = 3

// RuleOrder orders rules of policies of equal priority.
type RuleOrder int

const (
	// RuleOrderByName orders by the policies' names. Hubs before v0.2.0 did so, and what they stored
	// keeps its order until its rules change.
	RuleOrderByName RuleOrder = iota
	// RuleOrderBySelector orders by how specifically policies select the object, then by name.
	RuleOrderBySelector
)

// Content of a Revision.
type Content struct {
	// Items, sorted by key.
	Items []Item `json:"items"`
	// Rules, in the order of application.
	Rules []Rule `json:"rules,omitempty"`
	// RuleOrder is how the rules of policies of equal priority are ordered.
	RuleOrder RuleOrder `json:"ruleOrder,omitempty"`
	// Interpreters of objects of the items' kinds, by name.
	Interpreters []Interpreter `json:"interpreters,omitempty"`
	// Tombstones that some row has not confirmed yet, sorted by key and UID.
	Tombstones []Tombstone `json:"tombstones,omitempty"`
	// ConflictResolution for objects that Atoll did not make.
	ConflictResolution v1alpha1.ConflictResolution `json:"conflictResolution"`
	// Removal mode of the items when a row goes.
	Removal v1alpha1.RemovalMode `json:"removal"`
	// Namespace is what the hub's namespace of the items carries, for members where it
	// has to be made. Nil for cluster-scoped items.
	Namespace *NamespaceMeta `json:"namespace,omitempty"`
	// NamespaceAlone: there are no items, and members get the namespace nevertheless.
	NamespaceAlone bool `json:"namespaceAlone,omitempty"`
	// RemovedWithHooks: users deleted all objects, and what is left, if anything, are hooks that run in removals. Members remove
	// the Bundle as a whole, so that the hooks run.
	RemovedWithHooks bool `json:"removedWithHooks,omitempty"`
	// MinRevision is the number of the Bundle's Revision from which on all differ in rules
	// alone that are applied with the next change: rows that are at one of those need
	// not move. 0: all rows are to have this content.
	MinRevision int64 `json:"base,omitempty"`
	// AssessmentParts, in an encoded content alone, are those of all items.
	AssessmentParts AssessmentParts `json:"assessments,omitempty"`
}

// HoldsNothing reports whether members get neither an item nor a namespace by the content.
func (c *Content) HoldsNothing() bool { return len(c.Items) == 0 && !c.NamespaceAlone }

// EncodeContentIdentity returns the bytes that name a Revision of the content: all of it
// but the fingerprints, and what its rules are described as, which changes nothing in a member.
func EncodeContentIdentity(c *Content) []byte {
	bare := *c
	bare.Items, bare.Rules = slices.Clone(c.Items), slices.Clone(c.Rules)
	for i := range bare.Rules {
		bare.Rules[i].Description = ""
	}
	for i := range bare.Items {
		bare.Items[i] = bare.Items[i].WithoutFingerprints()
	}
	b, err := json.Marshal(bare.WithListedAssessments())
	if err != nil {
		panic(fmt.Sprintf("atoll: content is made of plain values: %v", err))
	}
	return b
}

// WithoutFingerprints is what of the item names a Revision: all of it but the fingerprints.
func (it Item) WithoutFingerprints() Item {
	it.SourceFingerprint = ""
	if it.Interpreted != nil {
		answers := *it.Interpreted
		answers.AnsweredBy, it.Interpreted = "", &answers
	}
	return it
}

// ParseLabels returns the labels of the item's object.
func (it *Item) ParseLabels() (map[string]string, error) {
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(it.Object, &object); err != nil {
		return nil, err
	}
	return object.Metadata.Labels, nil
}

// RenderedItem is an item as one member gets it.
type RenderedItem struct {
	Key        ItemKey         `json:"key"`
	APIVersion string          `json:"apiVersion"`
	UID        string          `json:"uid"`
	Object     json.RawMessage `json:"object"`
	// Hash of Object, Leave and Error: equal hashes are equal content.
	Hash       string `json:"hash"`
	Dependency bool   `json:"dependency,omitempty"`
	// MemberOwned lists JSON Pointers of fields that the member owns. Their values in Object
	// initialise a new object, and are not applied to an existing one.
	MemberOwned []string `json:"leave,omitempty"`
	// Error is why the item could not be rendered: the member keeps its last good content and
	// reports the error. An observed item has UnknownObservation here, an item with a ServiceAccount has
	// UnknownServiceAccount, and one with an Assessment UnknownAssessment, which is no part of Hash. By these,
	// agents without support for the field do not apply the item either.
	Error string `json:"error,omitempty"`
	// Observe is what the member reports of the object instead of writing it; empty: it writes it.
	Observe Observation `json:"observe,omitempty"`
	// Approval, with ObserveForApproval, is the ID of the drift that a person approved: the member applies the
	// item once while it reports the drift under this ID. It is no part of Hash.
	Approval string `json:"approval,omitempty"`
	// Recreate: where the member refuses an edit that it would accept in a new object, the object is deleted and
	// created again.
	Recreate bool `json:"recreate,omitempty"`
	// ConflictResolution for the object; empty: that of the content, and in a manifest that of the manifest.
	ConflictResolution v1alpha1.ConflictResolution `json:"conflict,omitempty"`
	// ServiceAccount of the member, as NAMESPACE/NAME, that must have the right to each write of the object;
	// empty: the agent's own rights suffice.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Wave of the item, as its treatment states it. It is no part of Hash: another wave applies nothing again.
	Wave int32 `json:"wave,omitempty"`
	// Hook is when the member runs the object; nil: it keeps the object applied. It is no part of Hash.
	Hook *Hook `json:"hook,omitempty"`
	// Hooked: the Bundle has hooks, so that Error is UnknownHook, which is no part of Hash.
	Hooked bool `json:"hooked,omitempty"`
	// Assessment of the object in the member; nil: by its kind alone. It is no part of Hash: other rules apply
	// nothing again.
	Assessment *Assessment `json:"assessment,omitempty"`
	// AssessmentParts, in an encoded manifest alone, are the indexes of the Assessment's parts in the list of the
	// manifest.
	AssessmentParts []int `json:"assessed,omitempty"`
	// ErrorReason is the enumerated reason of Error, for previews. A member reports RenderFailed.
	ErrorReason Reason `json:"-"`
	// SharedHash, in a Bundle with hooks, is a hash of the item before the cluster's share of replicas and its API
	// versions: another share runs no hook again.
	SharedHash string `json:"-"`
}

// Failed reports whether the item could not be rendered, or is of a Bundle with hooks and was stored by an agent that dropped them.
func (it *RenderedItem) Failed() bool {
	if it.Error == UnknownHook {
		return !it.Hooked
	}
	return it.Error != "" && it.Observe == "" && it.ServiceAccount == "" && it.Assessment == nil && len(it.AssessmentParts) == 0
}

// IsWritten reports whether a member writes the item's content: it could be rendered, and is not only observed.
func (it *RenderedItem) IsWritten() bool { return it.Observe == "" && !it.Failed() }

// StatesCompletion reports whether the item's Assessment defines when its object has run to completion.
func (it *RenderedItem) StatesCompletion() bool {
	return it.Assessment != nil && it.Assessment.Completion != ""
}

// ExpiresAfter returns how long after it has run to completion a member deletes the object; false: it does not.
func (it *RenderedItem) ExpiresAfter() (after time.Duration, expires bool) {
	if it == nil || it.Assessment == nil || it.Assessment.TTLSecondsAfterFinished == nil {
		return 0, false
	}
	return time.Duration(*it.Assessment.TTLSecondsAfterFinished) * time.Second, true
}

// HasLostField reports whether an agent without support for a field of the item stored it, and dropped the field.
func (it *RenderedItem) HasLostField() bool {
	return it.Error == UnknownObservation && it.Observe == "" || it.Error == UnknownServiceAccount && it.ServiceAccount == "" ||
		it.Error == UnknownAssessment && it.Assessment == nil || it.Error == UnknownHook && !it.Hooked
}

// Observation is what a member reports of an object that it does not write.
type Observation string

// The observations.
const (
	// ObserveHealth: health and status.
	ObserveHealth Observation = "Health"
	// ObserveDrift: also where the object differs from the item.
	ObserveDrift Observation = "Drift"
	// ObserveForApproval: as ObserveDrift, with an ID by which a person approves that the member applies the item once.
	ObserveForApproval Observation = "Approve"
)

// ReportsDrift reports whether the member reports where the object differs from the item.
func (o Observation) ReportsDrift() bool { return o == ObserveDrift || o == ObserveForApproval }

// UnknownObservation is the error of an observed item, which agents without support for Observe report. It
// must never change: newer agents find by it what older ones stored.
const UnknownObservation = "the agent is older than update: ReadOnly and drift: Report, and keeps the content that it had: upgrade the agent"

// UnknownServiceAccount is the error of an item with a ServiceAccount, which agents without support for the
// field report. It must never change: newer agents find by it what older ones stored.
const UnknownServiceAccount = "the agent is older than serviceAccount, and keeps the content that it had: upgrade the agent"

// Manifest is all that one member is to hold of one Bundle.
type Manifest struct {
	// Bundle UID.
	Bundle string `json:"bundle"`
	// Namespace and Name of the Bundle, for people.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Generation of the row; a lower never replaces a higher.
	Generation int64 `json:"generation"`
	// Content is the hash over all of the manifest but generation.
	Content            string                      `json:"content"`
	Items              []RenderedItem              `json:"items"`
	Tombstones         []Tombstone                 `json:"tombstones,omitempty"`
	ConflictResolution v1alpha1.ConflictResolution `json:"conflictResolution"`
	Removal            v1alpha1.RemovalMode        `json:"removal"`
	// Interpreters by which the agent judges objects of the items' kinds, by name.
	Interpreters []Interpreter `json:"interpreters,omitempty"`
	// HookRun names the content for which hooks run: each once for it. Empty: there are no hooks.
	HookRun string `json:"hookRun,omitempty"`
	// RemovalHooks, with Remove, is a person's order about the hooks of the removal, as AnnotationRemovalHooks has it.
	RemovalHooks string `json:"removalHooks,omitempty"`
	// Namespaces' labels and annotations as on the hub, for namespaces that the
	// agent must make, for an item or for themselves.
	Namespaces map[string]NamespaceMeta `json:"namespaces,omitempty"`
	// Remove: the row is Removing. Items are then empty; everything that the
	// member holds of the Bundle goes (Removal defines how).
	Remove bool `json:"remove,omitempty"`
	// ClusterDecommissioned, with Remove and RemoveOrphan: the cluster leaves the fleet.
	// Objects that Atoll created keep a note of their template, by which they are adopted again
	// when the cluster returns.
	ClusterDecommissioned bool `json:"leftBehind,omitempty"`
	// DeletedNamespaces are hub namespaces whose tombstone lets the agent remove a
	// namespace that it made, once nothing foreign is in it.
	DeletedNamespaces []string `json:"deletedNamespaces,omitempty"`
	// AssessmentParts, in an encoded manifest alone, are those of all items.
	AssessmentParts AssessmentParts `json:"assessments,omitempty"`
}

// NamespaceMeta is what a namespace that the agent makes carries.
type NamespaceMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// ServiceAccount of the member that must have the right to each write in the namespace, as the hub's
	// Namespace names it; in a content and a manifest as NAMESPACE/NAME. Empty: none is named.
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Compare orders keys by their parts.
func (k ItemKey) Compare(o ItemKey) int {
	return cmp.Or(
		strings.Compare(k.Group, o.Group), strings.Compare(k.Kind, o.Kind),
		strings.Compare(k.Namespace, o.Namespace), strings.Compare(k.Name, o.Name),
	)
}
