// Package compare decides in what a fleet differs from a single cluster.
//
// Contract: pure functions of values, which may be called concurrently. Arguments are never changed,
// and results share nothing with them. Values of clusters appear in results shortened, but not
// escaped: the caller escapes before it prints.
package compare
