// Package report turns what the agent knows of a Bundle into the row status that
// it reports.
//
// Contract: a pure core, values in, values out. The status depends on nothing but
// the Input; Since fields keep their time as long as the state that they date
// stays. Messages are bounded by MaxMessage, and a status by 20 kB whatever the number
// of items: the ones that somebody needs to see are listed, and the others that are
// not ready are counted. Safe for concurrent use.
package report
