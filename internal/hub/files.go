package hub

import (
	"fmt"
	"syscall"
)

// filesNeeded may be open in a hub without any agent: the store's, the API server's own
// connections, and people's. The store ends the process without a word when it cannot
// open one.
const filesNeeded = 512

// enoughFiles tells whether this process may open as many files as it needs.
func enoughFiles() error {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("ask how many files this process may open: %w", err)
	}
	if files.Cur < filesNeeded {
		return fmt.Errorf("this process may open %d files, and a hub needs at least %d, and one more for each agent's connection: "+
			"raise the limit (ulimit -n, or LimitNOFILE= of its unit)", files.Cur, filesNeeded)
	}
	return nil
}
