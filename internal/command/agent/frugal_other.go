//go:build !linux

package agent

// dropPages does nothing where the kernel is not known.
func dropPages() {}
