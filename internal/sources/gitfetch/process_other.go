//go:build !linux

package gitfetch

import "os/exec"

// isolateChild does nothing: a child ends by its own timeout.
func isolateChild(*exec.Cmd) {}

// lockDirectory locks nothing, so no directory that another process may have is removed.
func lockDirectory(string) (release func(), locked bool) { return nil, false }

// limitProcess does nothing: GOMEMLIMIT and the bounds of bytes hold.
func limitProcess() error { return nil }
