package atoll

// Names that people see on objects of the hub.
const (
	// Finalizer is on every template that a Bundle holds; it goes when the
	// template's tombstone is confirmed by every reachable cluster.
	Finalizer = "atoll.dev/propagated"

	// FinalizerBundle is on every Bundle from its creation; it goes when every row
	// of the Bundle is Removing and every reachable cluster has confirmed it.
	FinalizerBundle = "atoll.dev/rows"

	// AnnotationClusters places an object, or what users wrote in a namespace,
	// without a policy: "tokyo-1,oslo-2", "*" or "selector: env=prod"; "" takes it
	// away everywhere.
	AnnotationClusters = "atoll.dev/clusters"

	// AnnotationConfirm, on a Bundle, holds the hash of the removal plan that an
	// administrator releases; `atoll confirm` writes it. A plan's hash never comes
	// again, so an old one does nothing.
	AnnotationConfirm = "atoll.dev/confirm"

	// AnnotationKeep, on a Bundle, holds the hash of a plan of removals that members
	// remember and a restored hub does not; it takes them back: what they are about
	// is placed again. `atoll restore keep` writes it.
	AnnotationKeep = "atoll.dev/keep"

	// AnnotationRecalled, on a template of a restored hub, says that members remember
	// its deletion by a user; Recalled reads it. Bundles hold the template back until
	// somebody confirms the deletion, or keeps it.
	AnnotationRecalled = "atoll.dev/removed-before-restore"

	// AnnotationConversion keeps a CRD's own conversion stanza (JSON), which the
	// hub stores as None and render gives back.
	AnnotationConversion = "atoll.dev/conversion"

	// LabelHub makes an object that is otherwise inert act on the hub: "true".
	LabelHub = "atoll.dev/hub"
	// LabelInert marks what is stored on the hub without acting there: "true".
	LabelInert = "atoll.dev/inert"
	// LabelProtected refuses deletes of the object: "true".
	LabelProtected = "atoll.dev/deletion-protected"

	// FieldManager of everything that the agent applies in a member.
	FieldManager = "atoll"
	// HandoverManager holds a field's live value while it passes from Atoll to
	// the member or back.
	HandoverManager = "atoll-handover"

	// SystemNamespace on the hub holds Secret parts and join tokens; in a member,
	// the agent's state.
	SystemNamespace = "atoll-system"

	// LabelBundleUID is on every object that the agent applied in a member (never
	// in pod templates): the UID of the Bundle that owns it there.
	LabelBundleUID = "atoll.dev/bundle-uid"

	// GroupAgents is the certificate organisation of agents.
	GroupAgents = "atoll:agents"
	// UserClusterPrefix and the Cluster's UID make the certificate's common name.
	UserClusterPrefix = "atoll:cluster:"
)
