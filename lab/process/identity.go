package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// killPatience is the time in which the kernel must remove a killed process; a loaded
// machine needs seconds to free gigabytes.
const killPatience = 30 * time.Second

// readIdentity reads the identity of process pid. It fails for a missing process or a
// zombie.
func readIdentity(pid int) (processIdentity, error) {
	start, err := startTime(pid)
	if err != nil {
		return processIdentity{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return processIdentity{}, err
	}
	return processIdentity{PID: pid, StartTime: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// startTime reads a living process's start time from /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets and may contain anything; the
	// rest follows the last bracket. In /proc/PID/stat the state is field 3, the number of
	// threads field 20, and the start time field 22.
	_, rest, ok := cutLast(string(data), ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has an unknown form", pid)
	}
	// The first thread may be dead while others still hold files and locks.
	if (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1") {
		return 0, fmt.Errorf("process %d is dead", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (id processIdentity) isAlive() bool {
	now, err := readIdentity(id.PID)
	return err == nil && now == id
}

// sendSignal sends sig to exactly this process; a missing process is no error. The handle
// is opened before the identity is compared, so that the id cannot pass to another process
// in between.
func (id processIdentity) sendSignal(sig syscall.Signal) error {
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !id.isAlive() {
		return nil
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (id processIdentity) killAndWait(ctx context.Context, name string) error {
	if err := id.sendSignal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s (process %d): %w", name, id.PID, err)
	}
	if err := id.waitGone(ctx, killPatience); err != nil {
		return fmt.Errorf("kill %s: process %d is still there: %w", name, id.PID, err)
	}
	return nil
}

// waitGone returns nil when the process is gone, or an error after patience.
func (id processIdentity) waitGone(ctx context.Context, patience time.Duration) error {
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return !id.isAlive(), nil
	})
}

// KillOwnedProcesses kills every process that was started for owner, also processes without an
// identity file, and returns their ids.
func KillOwnedProcesses(ctx context.Context, owner string) ([]int, error) {
	var killed []int
	var errs []error
	for _, id := range ownedProcesses(owner) {
		if err := id.killAndWait(ctx, "process of "+owner); err != nil {
			errs = append(errs, err)
			continue
		}
		killed = append(killed, id.PID)
	}
	return killed, errors.Join(errs...)
}

// ownedProcesses returns the processes with owner's mark in their environment. Processes of
// other users cannot be read and do not count.
func ownedProcesses(owner string) []processIdentity {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []processIdentity
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, err := readIdentity(pid)
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), ownerVariable+"="+owner) {
			continue
		}
		found = append(found, id)
	}
	return found
}
