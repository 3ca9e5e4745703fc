// Package files reports whether a process may open as many files as a hub needs.
//
// Contract: it looks at the process's own limit and changes nothing.
package files

import (
	"fmt"
	"syscall"
)

// requiredFiles may be open in a hub without any agent: the store's, the API server's own
// connections, and people's. The store ends the process without a word when it cannot
// open one.
const requiredFiles = 512

// CheckOpenFileLimit is an error where this process may open fewer files than a hub needs.
func CheckOpenFileLimit() error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("read how many files this process may open: %w", err)
	}
	if files.Cur < requiredFiles {
		return fmt.Errorf("this process may open %d files, and a hub needs at least %d, and one more for each agent's connection: "+
			"raise the limit (ulimit -n, or LimitNOFILE= of its unit)", files.Cur, requiredFiles)
	}
	return nil
}
