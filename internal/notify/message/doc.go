// Package message writes the messages of Notifications, in the words that each target takes.
//
// Contract: functions are pure. A text that users or members wrote is escaped and cut, so that it is plain text in each target: it has
// no markup, no mention and no header. Templates of users have no loops and no functions that make long texts.
package message
