package atoll

import "time"

// Paths of the hub's API that are no resources. Answers are JSON, or with output=text text for people;
// all=true lists what is otherwise a count.
const (
	// PlanPath answers POST with what would change if objects were written. The body is the objects.
	// Nothing is written, and rights to write are not checked: a dry run of each write does both checks,
	// and returns the objects as they would be stored.
	PlanPath = "/atoll/v1alpha1/plan"
	// RebalancePath answers POST with what would change if Bundles, or the Bundles of Placements, were placed
	// from scratch. The body names them. Nothing is written: an annotation with the answered time starts
	// the change.
	RebalancePath = "/atoll/v1alpha1/rebalance"
	// ExplainPath answers GET with the reasons for the place of an object. The parameters group, kind,
	// namespace and name identify the object; cluster narrows the answer to one cluster.
	ExplainPath = "/atoll/v1alpha1/explain"
	// RenderPath answers GET with what clusters get of an object, as JSON only. The parameters are those of
	// ExplainPath.
	RenderPath = "/atoll/v1alpha1/render"
	// DriftPath answers GET with the objects that clusters only observe and that have drift, as JSON only.
	// The parameters are those of ExplainPath; namespace alone narrows the answer to a namespace.
	DriftPath = "/atoll/v1alpha1/drift"
	// UndoPath answers GET with the changes that are kept for undo, as JSON only. The parameter namespace names
	// the namespace; those of ExplainPath identify one object. With the parameter revision, the answer
	// is the state before that change. POST with it answers with the patch that takes an edit back. The body has the
	// present object, and after the write also the live one. Nothing is written.
	UndoPath = "/atoll/v1alpha1/undo"
	// TreePath answers GET with the templates, clusters and health of an application, as JSON only. The parameters
	// namespace and name identify its Bundle; cluster narrows the answer to one cluster, and limit bounds
	// the clusters. With watch=true, the answer is a stream: the tree, then its changes, one a line.
	TreePath = "/atoll/v1alpha1/tree"
	// FleetCountsPath answers GET with the numbers of clusters by state, as JSON only. The parameter by names a property, such as
	// region, by whose values they are counted, too; others are the filter.
	FleetCountsPath = "/atoll/v1alpha1/fleet/counts"
	// FleetClustersPath answers GET with a page of slim clusters, as JSON only.
	FleetClustersPath = "/atoll/v1alpha1/fleet/clusters"
	// FleetSourcesPath answers GET with Sources without their inventories, as JSON only.
	FleetSourcesPath = "/atoll/v1alpha1/fleet/sources"
	// FleetSearchPath answers GET with clusters, applications, Sources, policies and Placements by their names, as JSON only.
	FleetSearchPath = "/atoll/v1alpha1/fleet/search"
	// ConsoleCodesPath answers POST with a one-time code, by which a browser signs in to the console as the person of the
	// request. It is no path of the API's chain: the console answers it.
	ConsoleCodesPath = "/console/codes"
)

// ConsoleCodeTime is how long a one-time code of the console is good, and MaxConsoleCodeTime the longest that a request may state.
const ConsoleCodeTime, MaxConsoleCodeTime = time.Minute, 10 * time.Minute

// StreamPaths are the paths whose answer is a stream with watch=true: first the whole, then what changed, one a line.
var StreamPaths = []string{TreePath, FleetCountsPath, FleetClustersPath, FleetSourcesPath}
