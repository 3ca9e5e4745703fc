package lease

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// holderOf makes the identity of some holder.
func holderOf(pod, machine string, pid int, since string) string {
	return strings.Join([]string{"some_host", pod, machine, strconv.Itoa(pid), since, "RANDOM"}, "_")
}

func TestOnlyTheSurelyDeadAreDead(t *testing.T) {
	if bootAndPIDNamespace() == "" {
		t.Skip("needs /proc")
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	me, mine := os.Getpid(), processStartTicks(os.Getpid())
	for _, c := range []struct {
		name, pod, holder string
		want              bool
	}{
		{"this process", "", HolderIdentity(""), false},
		{"this process, for a hub", "", HolderIdentity("atoll-hub-1@hub_1:6444"), false},
		{"process that ended", "", holderOf("", bootAndPIDNamespace(), ended.Process.Pid, "1"), true},
		{"number given to another process", "", holderOf("", bootAndPIDNamespace(), me, "1"), true},
		{"start not known", "", holderOf("", bootAndPIDNamespace(), ended.Process.Pid, ""), false},
		{"other machine", "", holderOf("", "boot.1", ended.Process.Pid, "1"), false},
		{"no machine", "p1", holderOf("p1", "", ended.Process.Pid, "1"), false},
		{"other pod", "p1", holderOf("p2", "boot.1", 1, "1"), false},
		{"neither in a pod", "", holderOf("", "boot.1", 1, "1"), false},
		{"earlier run of the same container", "p1", holderOf("p1", "boot.1", 1, "1"), true},
		{"beside us in the same container", "p1", holderOf("p1", bootAndPIDNamespace(), me, mine), false},
		{"older format", "p1", "host_boot.1_1_1_RANDOM", false},
		{"another-holder", "p1", "leader", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(PodVariable, c.pod)
			if got := isHolderDead(c.holder); got != c.want {
				t.Fatalf("dead(%q) is %v", c.holder, got)
			}
		})
	}
}
