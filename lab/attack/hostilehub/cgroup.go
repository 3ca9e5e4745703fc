package hostilehub

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// memoryGroup is a cgroup with a memory limit.
type memoryGroup struct{ dir string }

// newMemoryGroup makes the cgroup, of version 2 or of version 1.
func newMemoryGroup(name string, limit int) (memoryGroup, error) {
	for _, v := range []struct{ dir, file string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		if _, err := os.Stat(filepath.Join(v.dir, "cgroup.procs")); err != nil {
			continue
		}
		g := memoryGroup{filepath.Join(v.dir, name)}
		err := os.MkdirAll(g.dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.dir, v.file), []byte(strconv.Itoa(limit)), 0o644)
		}
		if err != nil {
			return g, fmt.Errorf("make a cgroup of %d MiB for the agent, which needs root: %w", limit>>20, err)
		}
		return g, nil
	}
	return memoryGroup{}, fmt.Errorf("this machine has no cgroups, in which the agent would get its %d MiB", limit>>20)
}

// wrapCommand returns the command that runs another one in the cgroup from its first instruction on.
func (g memoryGroup) wrapCommand(command ...string) []string {
	return append([]string{"/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.dir}, command...)
}

// removeGroup removes the cgroup, in which nothing runs any more.
func (g memoryGroup) removeGroup() { _ = os.Remove(g.dir) } // an empty directory of the kernel costs nothing

// CheckMemoryGroups returns an error where this machine or user cannot limit the memory of a process.
func CheckMemoryGroups() error {
	g, err := newMemoryGroup(fmt.Sprint("atoll-attack-check-", os.Getpid()), MemoryLimit)
	if err == nil {
		g.removeGroup()
	}
	return err
}
