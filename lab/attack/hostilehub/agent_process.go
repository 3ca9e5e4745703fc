package hostilehub

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/lab"
)

// restartPause is between the end of the agent and its restart, as a kubelet would restart it.
const restartPause = time.Second

// agentProcess runs the built agent in its cgroup, and starts it again when it ends.
type agentProcess struct {
	log     string
	group   memoryGroup
	stopped context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	pid  int // 0: it does not run
	ends []string
}

// startAgent starts the agent of the member with the hub.
func startAgent(ctx context.Context, m *Member, h *hub) (*agentProcess, error) {
	program, err := lab.ProgramPath("atoll")
	if err != nil {
		return nil, err
	}
	group, err := newMemoryGroup(fmt.Sprint("atoll-attacked-agent-", os.Getpid()), MemoryLimit)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &agentProcess{log: filepath.Join(m.dir, "attacked-agent.log"), group: group, stopped: stop}
	log, err := os.Create(p.log)
	if err != nil {
		stop()
		return nil, fmt.Errorf("log of the agent: %w", err)
	}
	command := group.wrapCommand(program, "agent", "--name", "attacked", "--hub", h.address, "--ca-hash", trust.CertificateKeyHash(h.ca.certificate), "--kubeconfig", m.kubeconfig)
	p.running.Go(func() {
		defer log.Close()
		for ctx.Err() == nil {
			end := p.runOnce(ctx, log, command)
			if ctx.Err() != nil {
				return
			}
			p.mu.Lock()
			p.ends = append(p.ends, end)
			p.mu.Unlock()
			_ = lab.PauseFor(ctx, restartPause) // ctx is checked above
		}
	})
	return p, nil
}

// runOnce runs the agent until it ends, and returns how it ended.
func (p *agentProcess) runOnce(ctx context.Context, log *os.File, command []string) string {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = maxLeaseAge
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	p.mu.Lock()
	p.pid = cmd.Process.Pid
	p.mu.Unlock()
	_ = cmd.Wait() // its state says how it ended
	p.mu.Lock()
	p.pid = 0
	p.mu.Unlock()
	return cmd.ProcessState.String()
}

// processID returns the id of the running process; 0 without one.
func (p *agentProcess) processID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// countRestarts returns how often the process ended.
func (p *agentProcess) countRestarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ends)
}

// lastEnd returns how the process ended last.
func (p *agentProcess) lastEnd() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ends[len(p.ends)-1]
}

// stopAgent ends the agent.
func (p *agentProcess) stopAgent() {
	p.stopped()
	p.running.Wait()
	p.group.removeGroup()
}
