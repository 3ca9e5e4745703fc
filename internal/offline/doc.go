// Package offline decides over nothing but files: which Bundles templates, policies and
// annotations come to, which clusters hold them, with how many replicas, and why not the
// others.
//
// Contract: a pure core. It only feeds the deciding functions, claim's and schedule's,
// with what was added to a World, and asks no hub. The result depends on the set of
// objects, not on their order, and on the time that is given. Objects are as a hub would
// store them: defaults are filled in, and what Atoll's own schemas refuse is refused with
// its path and reason. ClusterSets, bindings, ClusterScores and HubSettings count as on a
// hub, over the ClusterSet that a fresh hub has. What members report counts as far as
// Clusters have it in their status. What only a hub can tell is not looked at: who may
// write what, which APIs clusters serve, rules in the schemas that are expressions.
//
// Where a hub breaks ties by UIDs, which files do not have, names stand for them: among
// clusters of equal claims another one may win on a hub.
//
// Bundles are decided one after the other in the order of their names: what the first are
// given of a cluster's stated capacity is gone for the others, as on a hub to which they
// come in that order.
package offline
