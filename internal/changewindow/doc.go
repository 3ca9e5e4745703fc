// Package changewindow decides when changes of clusters may start, by the windows of a rollout.
//
// Contract: a pure core. Values in, values out: no client, no clock, no logger, no goroutine. Its one table numbers time zones. A Windows is
// immutable and safe for concurrent use. A View belongs to one goroutine, and holds for one moment.
//
// Guarantees:
//   - A Deny window that is open wins over every Allow window.
//   - A window is open from a start until its duration has passed, by elapsed time. Starts that overlap
//     make one longer time.
//   - A start that the clock of the time zone skips comes when the clock jumps. A start that the clock shows
//     twice comes twice. So a jump takes no Deny window away.
//   - A window that follows the time zone of its clusters is judged once for each of their zones.
//   - A window that cannot be read, which admission refuses, allows no change.
//   - No schedule makes a search longer than its bound.
package changewindow
