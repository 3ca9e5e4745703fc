package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/lab"
)

// measureFreshAndRestartedHub starts a hub on an empty directory, and again on the same directory.
func (o benchOptions) measureFreshAndRestartedHub(ctx context.Context, dir string) ([]benchNumber, error) {
	first, _, err := o.measureHubStart(ctx, dir, 0)
	if err != nil {
		return nil, err
	}
	again, memory, err := o.measureHubStart(ctx, dir, o.idle)
	if err != nil {
		return nil, err
	}
	path, err := lab.ProgramPath("atoll")
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return []benchNumber{
		{What: "hub ready, first start", Value: first.Seconds(), Unit: "s", How: "process start to /readyz, empty directory: CA, CRDs and all"},
		{What: "hub ready, restart", Value: again.Seconds(), Unit: "s", How: "process start to /readyz"},
		{What: "hub memory, idle", Value: memory, Unit: "MB", How: fmt.Sprintf("resident, %s after the restart; etcd and API server included", o.idle)},
		{What: "agent and CLI binary", Value: float64(info.Size()) / 1e6, Unit: "MB", How: "size of bin/atoll"},
	}, nil
}

// measureHubStart runs a hub until it is ready, and idle for a while.
func (o benchOptions) measureHubStart(ctx context.Context, dir string, idle time.Duration) (ready time.Duration, memory float64, err error) {
	path, err := lab.ProgramPath("atoll-hub")
	if err != nil {
		return 0, 0, err
	}
	log, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	// The file contains the hub's address. An old one would report it too early.
	kubeconfig := filepath.Join(dir, "hub.kubeconfig")
	if err := os.Remove(kubeconfig); err != nil && !os.IsNotExist(err) {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, path, "--data-dir", dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		// The signal ends it: the exit status does not matter.
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		return isHubReady(ctx, kubeconfig), nil
	})
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return 0, 0, fmt.Errorf("the hub was not ready: %w; its log ends with: %s", err, text[max(0, len(text)-1000):])
	}
	ready = time.Since(begin)
	if idle == 0 {
		return ready, 0, nil
	}
	if err := lab.PauseFor(ctx, idle); err != nil {
		return 0, 0, err
	}
	memory, err = residentMB(cmd.Process.Pid)
	return ready, memory, err
}

func isHubReady(ctx context.Context, kubeconfig string) bool {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return false
	}
	config.Timeout = time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	return err == nil && client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil
}

// residentMB returns the resident memory of a process in MB (10^6 bytes).
func residentMB(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			var kib float64
			if _, err := fmt.Sscanf(rest, "%f kB", &kib); err != nil {
				return 0, fmt.Errorf("%s: %w", f.Name(), err)
			}
			return kib * 1024 / 1e6, nil
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", f.Name())
}
