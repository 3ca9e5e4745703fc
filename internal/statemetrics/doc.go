// Package statemetrics counts Bundles, Clusters and rows for metrics, and measures how long a user's
// write takes through the hub.
//
// Contract: a change of one object costs a constant number of operations, whatever the size of the
// fleet; a scrape costs the number of series. Nothing is read from the store. Labels are phases,
// states and enumerated reasons; any other reason counts as Other. All methods may be called
// concurrently. A Collector stores a few words for each Bundle and Cluster, and nothing for
// rows but those of a change that is not shown yet.
package statemetrics
