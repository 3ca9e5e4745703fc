// Package report builds the row status that an agent reports from its knowledge of a Bundle.
//
// Contract: a pure core, values in, values out. The status depends only on the Input. Since fields
// keep their time as long as their state stays. Messages are bounded by MaxMessage, and a status
// by 37 KiB whatever the number of items: important ones are listed, and the others that are not
// ready are counted. Large statuses of items have 17 KiB of it, and no health depends on them. Safe for concurrent use.
package report
