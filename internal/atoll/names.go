package atoll

import (
	"fmt"
	"strconv"
	"strings"
)

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

	// AnnotationKeep, on a Bundle, holds the hash of a plan of removals that members recorded and a
	// restored hub did not; it takes them back: what they are about
	// is placed again. `atoll restore keep` writes it.
	AnnotationKeep = "atoll.dev/keep"

	// AnnotationRebalance, on a Bundle or a Placement, holds the time of a request to place it
	// from scratch, as RFC 3339 with at most milliseconds; `atoll rebalance` writes it. Rows store it:
	// the same time again does nothing.
	AnnotationRebalance = "atoll.dev/rebalance"

	// AnnotationCorrectDrift, on a Bundle, holds the IDs of drift that members are to correct once, and after
	// a space the name of the user, which admission adds; `atoll drift correct` writes it. Further lines are
	// earlier orders. An ID never comes again, so an old one does nothing.
	AnnotationCorrectDrift = "atoll.dev/correct-drift"

	// AnnotationRemovalRequested, on a Cluster, holds when its removal from the fleet was requested;
	// admission writes it, and keeps it as long as spec.removal keeps its mode. It
	// distinguishes one removal from the next.
	AnnotationRemovalRequested = "atoll.dev/removal-asked"

	// AnnotationRecalled, on a template of a restored hub, marks that members recorded its deletion by a
	// user; RememberedDeletionNote reads it. Bundles hold the template back until a person
	// confirms the deletion, or keeps the template.
	AnnotationRecalled = "atoll.dev/removed-before-restore"

	// AnnotationConversion keeps a CRD's own conversion stanza (JSON), which the
	// hub stores as None and render gives back.
	AnnotationConversion = "atoll.dev/conversion"

	// AnnotationUpdate, AnnotationIgnoreFields, AnnotationDrift, AnnotationConflict and
	// AnnotationRemoval, on a template, are update, ignoreFields (JSON Pointers, separated by commas),
	// drift, conflictResolution and removal of an ItemRule for the object.
	AnnotationUpdate       = "atoll.dev/update"
	AnnotationIgnoreFields = "atoll.dev/ignore-fields"
	AnnotationDrift        = "atoll.dev/drift"
	AnnotationConflict     = "atoll.dev/conflict-resolution"
	AnnotationRemoval      = "atoll.dev/removal"

	// AnnotationWave, on a template, is the wave of the object: members apply it once all objects of earlier waves
	// are healthy. Without it, the annotation of Argo CD with the same meaning counts.
	AnnotationWave       = "atoll.dev/wave"
	AnnotationArgoCDWave = "argocd.argoproj.io/sync-wave"

	// AnnotationHook, on a template, lists the events in which members run the object, and AnnotationHookDelete when they
	// delete it. Without AnnotationHook, the annotations of Argo CD with the same meaning count.
	AnnotationHook             = "atoll.dev/hook"
	AnnotationHookDelete       = "atoll.dev/hook-delete-policy"
	AnnotationArgoCDHook       = "argocd.argoproj.io/hook"
	AnnotationArgoCDHookDelete = "argocd.argoproj.io/hook-delete-policy"

	// AnnotationRemovalHooks, on a Bundle, is a person's order about the hooks of removals that are underway:
	// RemovalHooksSkip, or Retry.
	AnnotationRemovalHooks = "atoll.dev/removal-hooks"

	// AnnotationServiceAccount, on a Namespace, is the ServiceAccount of members that must have the right to
	// each write of the namespace's objects: NAME, in the namespace, or NAMESPACE/NAME. Policies do not replace it.
	AnnotationServiceAccount = "atoll.dev/service-account"

	// LabelHub makes an object that is otherwise inert act on the hub: "true".
	LabelHub = "atoll.dev/hub"
	// KeyHubOnly, as an annotation or a label with the value "true", keeps an object on the hub. On
	// a CRD it counts for the objects of the kind, too. Objects that controllers on the hub make of it
	// go to the clusters of its placement.
	KeyHubOnly = "atoll.dev/hub-only"
	// LabelInert marks what is stored on the hub without acting there: "true".
	LabelInert = "atoll.dev/inert"
	// LabelProtected refuses deletes of the object: "true".
	LabelProtected = "atoll.dev/deletion-protected"

	// LabelTenant is on what `atoll tenant create` makes: the tenant's name.
	LabelTenant = "atoll.dev/tenant"

	// LabelCluster is on what the hub shows of what runs in a member: the cluster's name.
	LabelCluster = "atoll.dev/cluster"
	// LabelComplete is on no object. A selector with the value "true" requests a complete list:
	// the request fails if the objects of a cluster are missing.
	LabelComplete = "atoll.dev/complete"
	// AnnotationNode is on what the hub shows of a Pod: the member's node that it runs on. On
	// the hub, its node is its cluster.
	AnnotationNode = "atoll.dev/node"

	// LabelDialect is on what the hub made of an object that another system's users write,
	// and which its controller reference names: that system.
	LabelDialect = "atoll.dev/dialect"

	// PlanManager is the field manager of the dry runs that `atoll plan` makes on the hub.
	PlanManager = "atoll-plan"
	// FieldManager of everything that the agent applies in a member.
	FieldManager = "atoll"
	// HandoverManager holds a field's live value while it passes from Atoll to
	// the member or back.
	HandoverManager = "atoll-handover"
	// HubFieldManager of what the hub writes in its own API.
	HubFieldManager = "atoll-hub"
	// CLIFieldManager of what people write in the hub's API by the CLI.
	CLIFieldManager = "atoll-cli"

	// SystemNamespace on the hub holds Secret parts and join tokens; in a member,
	// the agent's state.
	SystemNamespace = "atoll-system"

	// TenantAccountPrefix begins the names of tenants' ServiceAccounts in SystemNamespace. Admission
	// lets an administrator of the fleet write those, and no others there.
	TenantAccountPrefix = "tenant-"

	// SecretTypeUndo is the type of the Secrets in SystemNamespace that keep what users changed.
	SecretTypeUndo = "atoll.dev/undo"

	// LabelRemoved is on the ConfigMaps of the hub's SystemNamespace that list the objects left
	// in removed clusters: the cluster's name.
	LabelRemoved = "atoll.dev/removed-cluster"

	// LabelBundleUID is on every object that the agent applied in a member (never
	// in pod templates): the UID of the Bundle that owns it there.
	LabelBundleUID = "atoll.dev/bundle-uid"

	// GroupAgents is the certificate organisation of agents.
	GroupAgents = "atoll:agents"
	// UserClusterPrefix and the Cluster's UID make the certificate's common name.
	UserClusterPrefix = "atoll:cluster:"
)

// RemovedRecordName returns the name of the ConfigMap that lists the objects left in a removed
// cluster.
func RemovedRecordName(cluster string) string { return "removed-" + cluster }

// RevisionName returns the name of a Bundle's Revision by its number and the hash of its content.
func RevisionName(bundle string, number int64, hash string) string {
	return fmt.Sprintf("%s-%d-%s", bundle, number, hash[:16])
}

// RevisionNumber returns the number of a Revision by its name; 0 where that is none.
func RevisionNumber(name string) int64 {
	rest, _, ok := cutAtLastDash(name)
	_, number, more := cutAtLastDash(rest)
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || !more || err != nil || n < 0 {
		return 0
	}
	return n
}

func cutAtLastDash(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// IsAcceptableRevision reports whether a row that is at one Revision of a Bundle need not move to
// another: it is that one, or no older than the base of it.
func IsAcceptableRevision(at, target string, base int64) bool {
	return at == target || base > 0 && RevisionNumber(at) >= base
}
