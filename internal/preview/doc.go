// Package preview describes what would change if objects were written: rows that come, move and
// go, replicas and fields in each cluster, removals that would be held, and refusals.
//
// Contract: a pure core. The supposed state comes in as values, made by the functions that act.
// Preview renders both sides by the function that renders for members, compares them and joins
// equal changes. Arguments are not changed. The result holds nothing that the user may not see.
// Values of Secrets never appear; an item that Input.MayReadItem refuses has neither name nor
// field; a Bundle that the user may not read is only counted.
package preview
