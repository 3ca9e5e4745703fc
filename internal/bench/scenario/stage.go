package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/bench/report"
	"atoll.dev/atoll/internal/lab"
	"atoll.dev/atoll/internal/lab/process"
)

const (
	hubPatience = 3 * time.Minute
	// grace is what processes get to end by themselves; profiles take a while.
	grace = 20 * time.Second
)

// stage is what a scenario plays on: one hub, simulated agents, clients and a report.
type stage struct {
	Options
	report *report.Report
	// hubs are the hub, or several on one etcd.
	hubs []*hub
	// fleets are the simulators, the first one is what applications are placed onto.
	fleets []*agents

	// config and kube lead to the hub that the user talks to.
	config *rest.Config
	kube   kubernetes.Interface
	etcd   *measure.Etcd
	mu     sync.Mutex // guards fleets

	sampler *sampler
	cast    cast
	// lock of the directory.
	lock *os.File
}

// newStage for a scenario; one that resumes goes on from what pairs-100k left.
func newStage(o Options, r *report.Report, resumes bool) (*stage, error) {
	s := &stage{Options: o, report: r}
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
	if s.lock, err = claim(dir, resumes); err != nil {
		return nil, err
	}
	h, err := s.newHub("hub")
	if err != nil {
		return nil, err
	}
	s.hubs = []*hub{h}
	return s, nil
}

// hub is a process of the stage.
type hub struct {
	process.Spec
	// dir is its data directory.
	dir    string
	config *rest.Config
	kube   kubernetes.Interface
}

// newHub describes a hub that is not started yet.
func (s *stage) newHub(name string, args ...string) (*hub, error) {
	path, err := lab.Program("atoll-hub")
	if err != nil {
		return nil, err
	}
	h := &hub{dir: filepath.Join(s.Dir, name)}
	command := append([]string{path, "--data-dir", h.dir}, args...)
	h.Spec = s.process(name, append(command, s.profiles(name)...)...)
	return h, nil
}

// process of the stage; it ends with the stage, whatever ends that.
func (s *stage) process(name string, command ...string) process.Spec {
	return process.Spec{
		Name: name, Owner: s.Dir, Command: command, Bound: true,
		Log:      filepath.Join(s.Dir, name+".log"),
		Identity: filepath.Join(s.Dir, name+".process"),
	}
}

// profiles are the arguments by which a process writes its profiles.
func (s *stage) profiles(name string) []string {
	if s.ProfileDir == "" {
		return nil
	}
	return []string{"--profile-dir", filepath.Join(s.ProfileDir, name)}
}

// scaled gives n at the scale of the run, at least least.
func (s *stage) scaled(n, least int) int {
	return max(least, int(math.Round(float64(n)*s.Scale)))
}

// startHub starts the hub, and returns how long it took to serve.
func (s *stage) startHub(ctx context.Context) (time.Duration, error) {
	took, err := s.start(ctx, s.hubs[0])
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

// use the hub as the user's.
func (s *stage) use(h *hub) error {
	s.config, s.kube = h.config, h.kube
	return publish(filepath.Join(h.dir, "hub.kubeconfig"), filepath.Join(s.Dir, "hub.kubeconfig"))
}

// start one hub, and return how long it took to serve. The first one that serves is
// the user's. One that starts again listens where it did, unless somebody else has taken
// its port meanwhile: who went on to ask there would hear nothing of this hub.
func (s *stage) start(ctx context.Context, h *hub) (time.Duration, error) {
	s.Progress.Step("starting the hub", 0)
	begin, was := time.Now(), h.kube
	kubeconfig := filepath.Join(h.dir, "hub.kubeconfig")
	// The file says where the hub listens; an old one would say it too early.
	if err := os.Remove(kubeconfig); err != nil && !os.IsNotExist(err) {
		return 0, fmt.Errorf("start the hub: %w", err)
	}
	if err := s.launch(h.Spec); err != nil {
		return 0, err
	}
	err := h.WaitReady(ctx, hubPatience, func(ctx context.Context) error {
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
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if was == nil {
		if err := unpublished(ctx, h.kube); err != nil {
			return 0, err
		}
	}
	if s.kube == was && h.kube != was { // the user's, or the first of all
		return took, s.use(h)
	}
	return took, nil
}

// unpublished has the hub publish no ClusterProfiles: they are two more writes for each
// cluster, some time after it joined, which is not what the scenarios count.
func unpublished(ctx context.Context, kube kubernetes.Interface) error {
	const settings = `{"apiVersion":"atoll.dev/v1alpha1","kind":"HubSettings","metadata":{"name":"hub"},"spec":{"clusterProfiles":"None"}}`
	last := error(nil)
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, hubPatience, true, func(ctx context.Context) (bool, error) {
		last = kube.Discovery().RESTClient().Post().AbsPath("/apis/atoll.dev/v1alpha1/hubsettings").Body([]byte(settings)).SetHeader("Content-Type", "application/json").Do(ctx).Error()
		return last == nil || apierrors.IsAlreadyExists(last), nil // the kind may not be served yet
	})
	if err != nil {
		return fmt.Errorf("turn the hub's ClusterProfiles off: %w (last: %v)", err, last)
	}
	return nil
}

// publish a kubeconfig where the simulator and people look for it.
func publish(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig of the hub: %w", err)
	}
	return nil
}

// end ends all processes, and removes the directory if it is the stage's own. err is
// how the scenario ended.
func (s *stage) end(ctx context.Context, err error) error {
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = s.notePeaks()
	}
	s.profileLiving(ctx)
	if err != nil {
		err = fmt.Errorf("%w\nthe hub's log ends with:\n%s", err, s.hubs[0].LastLines())
	}
	for _, a := range s.fleets {
		err = errors.Join(err, a.process.Stop(ctx, grace))
	}
	if s.etcd != nil {
		_ = s.etcd.Close()
	}
	for _, h := range s.hubs {
		err = errors.Join(err, h.Stop(ctx, grace))
	}
	_, killErr := process.KillOwned(ctx, s.Dir)
	err = errors.Join(err, killErr)
	if s.Options.Dir == "" || isTemporary(s.Dir) {
		err = errors.Join(err, os.RemoveAll(s.Dir))
	}
	return errors.Join(err, s.lock.Close())
}

// profileLiving has the processes write their profiles while they still hold what they
// hold: at their end, they have let go of it.
func (s *stage) profileLiving(ctx context.Context) {
	if s.ProfileDir == "" {
		return
	}
	for _, h := range s.hubs {
		if state, pid := h.State(); state == process.Running {
			s.profileProcess(ctx, h.Name, pid)
		}
	}
	for _, a := range s.simulators() {
		stats, err := a.control.Stats(ctx)
		if err != nil {
			continue
		}
		for _, pid := range stats.PIDs {
			s.profileProcess(ctx, a.process.Name, pid)
		}
	}
}

// profileProcess has one process write its profiles.
func (s *stage) profileProcess(ctx context.Context, name string, pid int) {
	written := func() (n int) {
		// The last kind that is written tells that all are.
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
	_ = until(ctx, "profiles of "+name, 50*time.Millisecond, grace, func(context.Context) (bool, error) {
		return written() > before, nil
	})
}

// profilePhase begins another CPU profile of hub and simulator, so that what comes now
// has one of its own.
func (s *stage) profilePhase(ctx context.Context) {
	if s.ProfileDir == "" {
		return
	}
	var pids []int
	if state, pid := s.hubs[0].State(); state == process.Running {
		pids = append(pids, pid)
	}
	if stats, err := s.stats(ctx); err == nil {
		pids = append(pids, stats.PIDs...)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGUSR1) // one that is gone has no profile
	}
}

func isTemporary(dir string) bool {
	ok, err := filepath.Match(filepath.Join(os.TempDir(), "atoll-bench-*"), dir)
	return ok && err == nil
}
