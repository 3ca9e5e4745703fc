// Package expr evaluates expressions of users in the Common Expression Language (CEL). A Selector
// chooses clusters, a Value is the value of an override in a cluster, and a Document is an
// expression over whole objects. A CountExpression is a condition over counts of clusters.
//
// Contract: a pure core. A text compiles to the same Selector everywhere. Compiled expressions
// are cached, so Bundles with equal texts share one. All functions are safe for concurrent use.
//
// An expression sees
//
//	cluster.name                             string
//	cluster.labels                           map(string, string)
//	cluster.region, .zone, .provider         string; the zone is empty where the cluster has several
//	cluster.zones                            list(string), all zones of the cluster
//	cluster.sets                             list(string), the ClusterSets of the cluster
//	cluster.properties                       map(string, string)
//
// and, besides the standard functions and macros, quantity(string) → double, which parses
// Kubernetes quantities such as "64Gi", and versionAtLeast(string, string) → bool.
//
// Agents report properties. Expressions read them by a literal name only, so a Selector lists
// the properties that it reads. The hub accepts those that its administrator allows.
//
// Cost is bounded twice. An expression that can cost more than MaxCost on a large Cluster does
// not compile, and the evaluation of one with loops stops at StopCost. Costs are CEL's own
// units: a core does some ten thousand in a millisecond.
package expr
