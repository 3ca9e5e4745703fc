// Package report turns what the agent knows of a Bundle into the row status that
// it reports.
//
// Contract: a pure core, values in, values out. The status depends on nothing but
// the Input; Since fields keep their time as long as the state that they date
// stays. Messages are bounded by MaxMessage. Safe for concurrent use.
package report
