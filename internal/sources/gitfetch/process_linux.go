package gitfetch

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// isolateChild lets a child end with the hub.
func isolateChild(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// lockDirectory locks a directory while its process runs; false when another process has it.
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

// limitProcess bounds the memory, the files and the core of this process. This process ends first when the machine
// has no memory left.
func limitProcess() error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fmt.Errorf("let this process end before the hub: %w", err)
	}
	const rlimitData = 2
	for resource, limit := range map[int]uint64{rlimitData: childData, syscall.RLIMIT_FSIZE: 2 * maxPackBytes, syscall.RLIMIT_CORE: 0, syscall.RLIMIT_NOFILE: 256} {
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}
