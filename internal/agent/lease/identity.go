package lease

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
)

// PodVariable is the environment variable in which the one container of a pod that
// runs the agent finds the pod's UID.
const PodVariable = "ATOLL_POD_UID"

// Identity of one holder: who runs it, by default its host; pod, boot and process namespace, process and when
// it started, so that another process of the same machine, or of the same pod, can
// tell whether this one still lives; and a random part, since one process may have
// several holders.
func Identity(runner string) string {
	if runner == "" {
		runner = host()
	}
	return strings.Join([]string{
		runner, pod(), machine(), strconv.Itoa(os.Getpid()), started(os.Getpid()), rand.Text()[:8],
	}, "_")
}

func host() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// pod UID; empty outside a pod.
func pod() string { return strings.ReplaceAll(os.Getenv(PodVariable), "_", "-") }

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

// dead tells whether the holder was a process that surely does not exist any more:
// one of this very machine and process namespace whose process is gone, or one of
// an earlier run of this pod's container, which the kubelet starts anew only after
// the end of the run before.
func dead(identity string) bool {
	parts := strings.Split(identity, "_")
	if len(parts) < 6 {
		return false
	}
	parts = parts[len(parts)-5:]
	inPod, where, since := parts[0], parts[1], parts[3]
	pid, err := strconv.Atoi(parts[2])
	switch {
	case err != nil || where == "":
		return false
	case where == machine():
		return since != "" && started(pid) != since
	}
	return inPod != "" && inPod == pod()
}
