// Package quantity reads Kubernetes quantities and adds and multiplies amounts without overflow.
//
// Contract: all functions are pure and may be called concurrently. Results are between 0 and
// math.MaxInt64. The cost of reading a quantity is bounded, whatever its text.
package quantity
