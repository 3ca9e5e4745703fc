// Package plan words what would change if objects were written: rows that come, move and
// go, replicas and fields in each cluster, removals that would be held, and what would be
// refused.
//
// Contract: a pure core. What would be comes in as values, made by the functions that
// act; plan renders both sides by the same function that renders for members, compares
// them and joins what is said. Arguments are not changed. Nothing that the asker may not
// see comes out: values of Secrets never, of items that Input.Visible refuses neither name
// nor field, of Bundles that he may not know only how many change.
package plan
