//go:build !linux

package gitfetch

import "os/exec"

// isolateChild does nothing: a child ends by its own timeout.
func isolateChild(*exec.Cmd) {}

// limitProcess does nothing: GOMEMLIMIT and the bounds of bytes hold.
func limitProcess() error { return nil }
