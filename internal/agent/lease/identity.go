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

// HolderIdentity returns the identity of one holder: its runner (default: its host), pod, boot and
// process namespace, process and start time. From it, another process of the same machine or pod
// can derive whether this one lives. A random part separates several holders of one process.
func HolderIdentity(runner string) string {
	if runner == "" {
		runner = hostName()
	}
	return strings.Join([]string{
		runner, ownPodUID(), bootAndPIDNamespace(), strconv.Itoa(os.Getpid()), processStartTicks(os.Getpid()), rand.Text()[:8],
	}, "_")
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// ownPodUID returns the pod's UID; empty outside a pod.
func ownPodUID() string { return strings.ReplaceAll(os.Getenv(PodVariable), "_", "-") }

// bootAndPIDNamespace names the boot and the process namespace; empty where there is no /proc.
func bootAndPIDNamespace() string {
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

// processStartTicks returns the start of the process in ticks since boot; empty when there is
// no such process.
func processStartTicks(pid int) string {
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

// isHolderDead reports whether the holder was a process that certainly does not exist any more. It
// was one of this machine and process namespace whose process is gone. Or it was one of an earlier
// run of this pod's container, which the kubelet restarts only after the earlier run ended.
func isHolderDead(identity string) bool {
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
	case where == bootAndPIDNamespace():
		return since != "" && processStartTicks(pid) != since
	}
	return inPod != "" && inPod == ownPodUID()
}
