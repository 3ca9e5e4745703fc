// Package expr evaluates what people write about a Cluster in the Common Expression
// Language: which clusters a placement chooses, and which
// value an override has there. A Document is an expression over whole objects instead.
//
// Contract: pure. A text compiles to the same Selector everywhere; compiled ones are
// kept, so that many Bundles that say the same share one. Everything may be called
// from many goroutines.
//
// An expression sees
//
//	cluster.name                             string
//	cluster.labels                           map(string, string)
//	cluster.region, .zone, .provider         string
//	cluster.sets                             list(string), the ClusterSets that it is in
//	cluster.properties                       map(string, string)
//
// and, beside the standard functions and macros, quantity(string) → double, which reads
// Kubernetes quantities such as "64Gi", and versionAtLeast(string, string) → bool.
//
// Properties are what agents report. They are read by a literal name only, so that a
// Selector tells which ones it reads: the hub lets those pass that its admin listed.
//
// Cost is bounded twice: what could cost more than MaxCost on a large Cluster does not
// compile, and what has loops is stopped at StopCost. Costs are CEL's own units, of
// which a core does some ten thousand in a millisecond.
package expr
