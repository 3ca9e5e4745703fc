//go:build !linux

package fetch

// lockDirectory locks nothing, so no directory that another process may have is removed.
func lockDirectory(string) (release func(), locked bool) { return nil, false }
