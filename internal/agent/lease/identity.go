package lease

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity of one holder: host, boot, process namespace, process and when it
// started, so that another process of the same machine can tell whether this one
// still lives; and a random part, since one process may have several holders.
func Identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s_%s_%d_%s_%s", host, machine(), os.Getpid(), started(os.Getpid()), rand.Text()[:8])
}

// machine names the boot and the process namespace; empty where there is no /proc.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	namespace = strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]")
	return strings.TrimSpace(string(boot)) + "." + namespace
}

// started gives the start of the process in ticks since boot; empty when there is
// no such process.
func started(pid int) string {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// dead tells whether the holder was a process of this very machine and process
// namespace that does not exist any more.
func dead(identity string) bool {
	parts := strings.Split(identity, "_")
	if len(parts) < 5 {
		return false
	}
	parts = parts[len(parts)-4:]
	pid, err := strconv.Atoi(parts[1])
	if err != nil || parts[0] == "" || parts[0] != machine() || parts[2] == "" {
		return false
	}
	return started(pid) != parts[2]
}
