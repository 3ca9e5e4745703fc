// Package policycheck checks the fields of policies that can be checked without a hub: placements, rollouts, suspensions, dependencies, budgets.
//
// Contract: pure functions, which may be called concurrently. An error names a field by its path, and what is wrong with it.
// Admission refuses by them what users write, and a plan without a hub refuses the same.
package policycheck
