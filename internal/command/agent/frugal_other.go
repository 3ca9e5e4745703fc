//go:build !linux

package agent

// releaseProgramPages does nothing where the kernel is not known.
func releaseProgramPages() {}
