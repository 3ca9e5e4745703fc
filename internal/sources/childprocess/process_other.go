//go:build !linux

package childprocess

import (
	"os"
	"os/exec"
)

// isolateChild does nothing: a child ends by its own timeout.
func isolateChild(*exec.Cmd) {}

// Limit does nothing: the soft limit of memory, the timeout and the bounds of bytes hold.
func Limit(Limits) error { return nil }

// LimitCPU does nothing, and never signals: the timeout holds.
func LimitCPU(uint64) (<-chan os.Signal, error) { return nil, nil }

// Confine does nothing: no hub runs on this system, and a person renders files of their own.
func Confine() error { return nil }
