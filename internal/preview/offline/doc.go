// Package offline decides over files alone: the Bundles of templates, policies and annotations,
// their clusters and replicas, and the reasons against the other clusters.
//
// Contract: a pure core. It only feeds the deciding functions of bundlecontent, policymatch and
// schedule with the objects of a World, and calls no hub. The result depends on the set of objects,
// not on their order, and on the given time. Objects are in the form that a hub would store:
// defaults are filled in, and a refusal by Atoll's own schemas has its path and reason.
// ClusterSets, bindings, ClusterScores and HubSettings count as on a hub, over the ClusterSet of a
// fresh hub. Reports of members count as far as Clusters have them in their status. Knowledge of a
// hub alone is not used: rights of users, APIs of clusters, and schema rules that are expressions.
//
// A hub breaks ties by UIDs, which files do not have. Names replace them here, so among equal
// clusters another one may win on a hub.
//
// Bundles are decided one after the other in the order of their names: the first ones' part of a
// cluster's stated capacity is gone for the others, as on a hub to which they come in that order.
package offline
