// Package attack attacks a hub that has 2 GB of memory and 1,000 agents, by every attack of
// package lab/attack, one after another and all at once.
//
// Contract: it drives the built binaries of ATOLL_BIN_DIR. The memory limit is a cgroup where the
// tests may create one; elsewhere the hub gets the same limit by its environment, and its peak is
// compared. The hub's cgroup goes first on the processors, as attackers have machines of their own;
// without one, times are not judged. ATOLL_ATTACK_FOR is how long each attack lasts, one second by default.
package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/attack"
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/fleet"
)

const (
	memoryLimit = 2 << 30
	agents      = 1000
	// togetherFor is how many times as long as one attack all of them last at once.
	togetherFor = 15
)

func TestTheHubHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hub and 1,000 agents")
	}
	if os.Getenv(lab.BinDirVariable) == "" {
		t.Fatalf("this test runs built binaries: `make build`, then %s=$PWD/bin go test -C lab ./test/attack", lab.BinDirVariable)
	}
	lasts := time.Second
	if text := os.Getenv("ATOLL_ATTACK_FOR"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	hub, alone := startHub(t, dir)
	target := openTarget(t, filepath.Join(dir, "hub", "hub.kubeconfig"))
	control := startAgents(t, dir)
	for _, a := range attack.Attacks {
		reportResult(t, attack.RunAttack(t.Context(), target, a, lasts), alone)
	}
	reportResult(t, attack.RunAttack(t.Context(), target, attack.CombineAttacks(attack.Attacks), togetherFor*lasts), alone)
	usage, err := measure.ReadProcess(hub.Process.Pid)
	if err != nil {
		t.Fatalf("the hub is gone: %v", err)
	}
	t.Logf("the hub's peak is %.0f MiB", usage.Peak/(1<<20))
	if usage.Peak-usage.File > memoryLimit {
		t.Errorf("the hub had %.0f MiB; %d are the most", usage.Peak/(1<<20), memoryLimit>>20)
	}
	waitForAgents(t, control)
	checkLog(t, hub.Stdout.(*os.File).Name())
}

const (
	// maxLogBytes bounds the hub's log of the whole test: strangers send 100 times as much in names.
	maxLogBytes = 16 << 20
	// maxLogLine bounds a line, which has several values of 2 KiB at most.
	maxLogLine = 16 << 10
)

// checkLog checks that the hub's log has no line and no control character of an attacker, and little of
// what attackers sent.
func checkLog(t *testing.T, path string) {
	t.Helper()
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the hub's log has %d KiB", len(log)>>10)
	if len(log) > maxLogBytes {
		t.Errorf("the hub's log has %d MiB; %d are the most", len(log)>>20, maxLogBytes>>20)
	}
	for line := range bytes.Lines(log) {
		text := strings.TrimSuffix(string(line), "\n")
		if len(text) > maxLogLine || strings.HasPrefix(text, "level=ERROR msg=forged") || phrase.EscapeText(text) != text {
			t.Errorf("the log has a line of %d bytes that an attacker wrote, or unescaped characters of one: %.200q", len(text), text)
			return
		}
	}
}

// reportResult fails the test if the hub did not hold. On processors that the attackers take from
// the hub, its times count for nothing.
func reportResult(t *testing.T, r attack.Result, alone bool) {
	t.Helper()
	switch t.Log(r); {
	case r.Broken == nil:
	case !alone && errors.Is(r.Broken, attack.ErrSlow):
		t.Log("the hub shares its processors with the attackers here: times are not judged")
	default:
		t.Errorf("the hub did not hold against %s", r.Attack.Name)
	}
}

// startProgram starts a program of the lab, which ends with the test.
func startProgram(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	program, err := lab.ProgramPath(name)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%d", memoryLimit*9/10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the end of %s:\n%s", log.Name(), text[max(0, len(text)-4000):])
		}
	})
	return cmd
}

// startHub starts the hub in cgroups of its own. alone reports whether one of them lets it go before
// all others on the processors.
func startHub(t *testing.T, dir string) (cmd *exec.Cmd, alone bool) {
	t.Helper()
	groups := newGroups(t)
	cmd = startProgram(t, dir, "atoll-hub", "--data-dir", filepath.Join(dir, "hub"), "--port", "0", "--gateway-port", "0")
	for _, g := range groups {
		if err := g.addProcess(cmd.Process.Pid); err != nil {
			t.Logf("no cgroup %s: %v", g.dir, err)
			continue
		}
		t.Logf("the hub is in the cgroup %s", g.dir)
		alone = alone || g.priority
	}
	return cmd, alone
}

// group is a cgroup of the hub.
type group struct {
	dir    string
	limits map[string]string
	// priority is true where the limits let the hub go first on the processors.
	priority bool
}

// newGroups returns the cgroups that the machine offers, of version 2 or of version 1. They are
// removed when the hub has ended.
func newGroups(t *testing.T) (out []group) {
	memory, name := strconv.Itoa(memoryLimit), fmt.Sprint("atoll-attack-", os.Getpid())
	for _, g := range []group{
		{"/sys/fs/cgroup", map[string]string{"memory.max": memory}, false},
		{"/sys/fs/cgroup", map[string]string{"cpu.weight": "10000"}, true},
		{"/sys/fs/cgroup/memory", map[string]string{"memory.limit_in_bytes": memory}, false},
		{"/sys/fs/cgroup/cpu", map[string]string{"cpu.shares": "262144"}, true},
	} {
		if _, err := os.Stat(filepath.Join(g.dir, groupProcesses)); err != nil {
			continue // the directory above the controllers of version 1 has no processes
		}
		g.dir = filepath.Join(g.dir, name)
		t.Cleanup(func() { _ = os.Remove(g.dir) }) // another entry may have removed it
		out = append(out, g)
	}
	return out
}

// groupProcesses is the file of a cgroup that lists its processes.
const groupProcesses = "cgroup.procs"

func (g group) addProcess(pid int) error {
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return err
	}
	for file, value := range g.limits {
		if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(g.dir, groupProcesses), []byte(strconv.Itoa(pid)), 0o644)
}

// openTarget waits until the hub serves and publishes its gateway.
func openTarget(t *testing.T, kubeconfig string) *attack.Target {
	t.Helper()
	var target *attack.Target
	testwait.UntilNil(t, "the hub publishes its gateway", func(ctx context.Context) (err error) {
		target, err = attack.OpenTarget(ctx, kubeconfig)
		return err
	})
	return target
}

func startAgents(t *testing.T, dir string) *fleet.SimulatorClient {
	t.Helper()
	startProgram(t, dir, "atoll-lab", "fleet", "--dir", dir, "--agents", strconv.Itoa(agents), "--stream", "--quiet")
	control := fleet.NewSimulatorClient(dir, fleet.DefaultPrefix)
	waitForAgents(t, control)
	return control
}

// waitForAgents waits until all agents are connected.
func waitForAgents(t *testing.T, control *fleet.SimulatorClient) {
	t.Helper()
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "all agents are connected", func(ctx context.Context) error {
		stats, err := control.ReadStats(ctx)
		if err == nil && stats.Connected != agents {
			err = fmt.Errorf("%d of %d agents are connected", stats.Connected, agents)
		}
		return err
	})
}
