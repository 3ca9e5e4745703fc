// Package rowcodec writes and reads the text of rows in TargetSlices: one line for each cluster,
// with the words that many lines share in a dictionary.
//
// Contract: every line that a released version wrote stays readable with the same meaning. A reader
// skips unknown fields, and refuses damaged lines. All functions are pure and
// may be called concurrently; a Dictionary belongs to one goroutine.
package rowcodec
