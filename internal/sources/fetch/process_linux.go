package fetch

import (
	"os"
	"syscall"
)

// lockDirectory locks a directory or a file while its process runs; false when another process has it.
func lockDirectory(dir string) (release func(), locked bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, false
	}
	return func() { f.Close() }, true
}
