package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/bench/report"
	"atoll.dev/atoll/lab/process"
)

const (
	hubPatience = 3 * time.Minute
	// stopGrace is the time in which processes must end by themselves; profiles take a
	// while.
	stopGrace = 20 * time.Second
)

// testbed is the environment of a scenario: a hub, simulated agents, clients and a report.
type testbed struct {
	Options
	report *report.BenchReport
	// hubs are the hub, or several on one etcd.
	hubs []*hubProcess
	// fleets are the simulators; applications are placed onto the first one.
	fleets []*agentFleet

	// config and kube are clients of the user's hub.
	config *rest.Config
	kube   kubernetes.Interface
	etcd   *measure.EtcdClient
	mu     sync.Mutex // guards fleets

	sampler  *seriesSampler
	required requiredProcesses
	// directoryLock is the lock on the directory.
	directoryLock *os.File
}

// newTestbed returns the testbed of a scenario. A scenario that resumes continues from the
// state of pairs-100k.
func newTestbed(o Options, r *report.BenchReport, resumes bool) (*testbed, error) {
	s := &testbed{Options: o, report: r}
	if s.Dir == "" {
		dir, err := os.MkdirTemp("", "atoll-bench-")
		if err != nil {
			return nil, fmt.Errorf("make a directory for the scenario: %w", err)
		}
		s.Dir = dir
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the scenario: %w", err)
	}
	s.Dir = dir
	if s.directoryLock, err = lockDirectory(dir, resumes); err != nil {
		return nil, err
	}
	ports, err := s.newHubPortArgs("hub")
	if err != nil {
		return nil, err
	}
	h, err := s.newHub("hub", ports...)
	if err != nil {
		return nil, err
	}
	s.hubs = []*hubProcess{h}
	return s, nil
}

// hubProcess is a hub of the testbed.
type hubProcess struct {
	process.ProcessSpec
	// dir is its data directory.
	dir    string
	config *rest.Config
	kube   kubernetes.Interface
}

// newHub describes a hub that is not started yet.
func (s *testbed) newHub(name string, args ...string) (*hubProcess, error) {
	path, err := lab.ProgramPath("atoll-hub")
	if err != nil {
		return nil, err
	}
	h := &hubProcess{dir: filepath.Join(s.Dir, name)}
	command := append([]string{path, "--data-dir", h.dir}, args...)
	h.ProcessSpec = s.processSpec(name, append(command, s.profileArgs(name)...)...)
	return h, nil
}

// newHubPortArgs returns the arguments that give a new hub ports of its own. At the usual ones the hub
// of another scenario could start while this one is killed. A hub of an earlier run has
// remembered its ports.
func (s *testbed) newHubPortArgs(name string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(s.Dir, name)); err == nil {
		return nil, nil
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	return []string{"--port", strconv.Itoa(ports[0]), "--gateway-port", strconv.Itoa(ports[1])}, nil
}

// freePorts returns different free ports of this machine.
func freePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		port, err := lab.FindFreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// processSpec returns a process of the testbed. It ends with the testbed in every case.
func (s *testbed) processSpec(name string, command ...string) process.ProcessSpec {
	return process.ProcessSpec{
		Name: name, Owner: s.Dir, Command: command, EndsWithStarter: true,
		Log:      filepath.Join(s.Dir, name+".log"),
		Identity: filepath.Join(s.Dir, name+".process"),
	}
}

// profileArgs are the arguments by which a process writes its profiles.
func (s *testbed) profileArgs(name string) []string {
	if s.ProfileDir == "" {
		return nil
	}
	return []string{"--profile-dir", filepath.Join(s.ProfileDir, name)}
}

// atScale returns n at the scale of the run, at least least.
func (s *testbed) atScale(n, least int) int {
	return max(least, int(math.Round(float64(n)*s.Scale)))
}

// startFirstHub starts the hub, and returns the time until it serves.
func (s *testbed) startFirstHub(ctx context.Context) (time.Duration, error) {
	took, err := s.startHubProcess(ctx, s.hubs[0])
	if err != nil {
		return 0, err
	}
	if s.etcd == nil {
		if s.etcd, err = measure.DialEtcd(ctx, s.hubs[0].dir); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// useHub makes the hub the user's.
func (s *testbed) useHub(h *hubProcess) error {
	s.config, s.kube = h.config, h.kube
	return copyKubeconfig(filepath.Join(h.dir, "hub.kubeconfig"), filepath.Join(s.Dir, "hub.kubeconfig"))
}

// connectClient makes the hub's client, and reports an error until the hub serves.
func (h *hubProcess) connectClient(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.UserAgent = "atoll-lab"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	if h.kube == nil || h.config.Host != config.Host {
		h.config, h.kube = config, kube
	}
	return nil
}

// startHubProcess starts one hub, and returns the time until it serves. The first hub that serves is
// the user's.
func (s *testbed) startHubProcess(ctx context.Context, h *hubProcess) (time.Duration, error) {
	s.Progress.BeginStep("starting the hub", 0)
	begin, was := time.Now(), h.kube
	kubeconfig := filepath.Join(h.dir, "hub.kubeconfig")
	// The file contains the hub's address. An old one would report it too early.
	if err := os.Remove(kubeconfig); err != nil && !os.IsNotExist(err) {
		return 0, fmt.Errorf("start the hub: %w", err)
	}
	if err := s.launchRequired(h.ProcessSpec); err != nil {
		return 0, err
	}
	if err := h.WaitReady(ctx, hubPatience, func(ctx context.Context) error { return h.connectClient(ctx, kubeconfig) }); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if was == nil {
		if err := disableClusterProfiles(ctx, h.kube); err != nil {
			return 0, err
		}
	}
	if s.kube == was && h.kube != was { // the user's, or the first of all
		return took, s.useHub(h)
	}
	return took, nil
}

// disableClusterProfiles turns ClusterProfiles off: they cause two more writes for each
// cluster, some time after its join, which the scenarios do not count.
func disableClusterProfiles(ctx context.Context, kube kubernetes.Interface) error {
	const settings = `{"apiVersion":"atoll.dev/v1alpha1","kind":"HubSettings","metadata":{"name":"hub"},"spec":{"clusterProfiles":"None"}}`
	last := error(nil)
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hubPatience, true, func(ctx context.Context) (bool, error) {
		last = kube.Discovery().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis/atoll.dev/v1alpha1/hubsettings/hub").Param("fieldManager", "atoll-lab").Body([]byte(settings)).Do(ctx).Error()
		return last == nil, nil // the kind may not be served yet
	})
	if err != nil {
		return fmt.Errorf("turn the hub's ClusterProfiles off: %w (last: %v)", err, last)
	}
	return nil
}

// copyKubeconfig writes a kubeconfig to the path where the simulator and people expect
// it.
func copyKubeconfig(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig of the hub: %w", err)
	}
	return nil
}

// tearDown ends all processes, and removes the directory if the testbed created it. err is
// the scenario's error.
func (s *testbed) tearDown(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = s.reportPeakMemory()
	}
	s.profileRunningProcesses(ctx)
	if err != nil {
		err = fmt.Errorf("%w\nthe hub's log ends with:\n%s", err, s.hubs[0].LastLines())
	}
	for _, a := range s.fleets {
		err = errors.Join(err, a.process.Stop(ctx, stopGrace))
	}
	if s.etcd != nil {
		_ = s.etcd.Close()
	}
	for _, h := range s.hubs {
		err = errors.Join(err, h.Stop(ctx, stopGrace))
	}
	_, killErr := process.KillOwnedProcesses(ctx, s.Dir)
	err = errors.Join(err, killErr)
	if s.Options.Dir == "" || isBenchScratchDir(s.Dir) {
		err = errors.Join(err, os.RemoveAll(s.Dir))
	}
	return errors.Join(err, s.directoryLock.Close())
}

// profileRunningProcesses makes the processes write their profiles before their end, when they still
// hold their memory.
func (s *testbed) profileRunningProcesses(ctx context.Context) {
	if s.ProfileDir == "" {
		return
	}
	for _, h := range s.hubs {
		if state, pid := h.CurrentState(); state == process.Running {
			s.profileProcess(ctx, h.Name, pid)
		}
	}
	for _, a := range s.agentFleets() {
		stats, err := a.control.ReadStats(ctx)
		if err != nil {
			continue
		}
		for _, pid := range stats.PIDs {
			s.profileProcess(ctx, a.process.Name, pid)
		}
	}
}

// profileProcess makes one process write its profiles.
func (s *testbed) profileProcess(ctx context.Context, name string, pid int) {
	written := func() (n int) {
		// The last written kind shows that all are written.
		names, err := filepath.Glob(filepath.Join(s.ProfileDir, name, fmt.Sprintf("goroutine-%d-*.pprof", pid)))
		if err != nil {
			return 0
		}
		return len(names)
	}
	before := written()
	if syscall.Kill(pid, syscall.SIGUSR2) != nil {
		return
	}
	// A scenario does not fail because a profile is late.
	_ = pollUntil(ctx, "profiles of "+name, 50*time.Millisecond, stopGrace, func(context.Context) (bool, error) {
		return written() > before, nil
	})
}

// startPhaseProfiles begins another CPU profile of hub and simulator, so that the next phase has
// its own.
func (s *testbed) startPhaseProfiles(ctx context.Context) {
	if s.ProfileDir == "" {
		return
	}
	var pids []int
	if state, pid := s.hubs[0].CurrentState(); state == process.Running {
		pids = append(pids, pid)
	}
	if stats, err := s.fleetStats(ctx); err == nil {
		pids = append(pids, stats.PIDs...)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGUSR1) // a stopped process has no profile
	}
}

func isBenchScratchDir(dir string) bool {
	ok, err := filepath.Match(filepath.Join(os.TempDir(), "atoll-bench-*"), dir)
	return ok && err == nil
}
