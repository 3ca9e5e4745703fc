// Package assess reads and judges a member's object by the rules that policies state of it: feedback, health and
// completion.
//
// Contract: a pure core. Rules compile once and judge often, and are safe for concurrent use. No argument is
// changed, and an answer depends on the arguments alone. The cost of each condition is bounded by expr, and paths
// cost time in proportion to the object. Nothing is read of a Secret. A rule that cannot be evaluated gives Unknown
// or a problem, and never Healthy.
package assess
