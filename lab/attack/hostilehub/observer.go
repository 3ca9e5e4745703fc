package hostilehub

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
)

const (
	memoryInterval = 50 * time.Millisecond
	leaseInterval  = time.Second
)

// observer measures the agent from outside.
type observer struct {
	agent   *agentProcess
	cancel  context.CancelFunc
	running sync.WaitGroup
	// Results, once stop has returned.
	peak     float64
	leaseAge time.Duration
}

// startObserver begins to measure.
func startObserver(ctx context.Context, m *Member, p *agentProcess) *observer {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{agent: p, cancel: cancel}
	o.running.Go(func() {
		for lab.PauseFor(ctx, memoryInterval) == nil {
			o.peak = max(o.peak, o.memoryNow())
		}
	})
	o.running.Go(func() {
		renewed, seen := time.Now(), ""
		for lab.PauseFor(ctx, leaseInterval) == nil {
			lease, err := m.kube.CoordinationV1().Leases(atoll.SystemNamespace).Get(ctx, agentLease, metav1.GetOptions{})
			if err == nil && lease.ResourceVersion != seen {
				renewed, seen = time.Now(), lease.ResourceVersion
			}
			o.leaseAge = max(o.leaseAge, time.Since(renewed))
		}
	})
	return o
}

// memoryNow returns the anonymous memory of the agent, in bytes; 0 while it does not run.
func (o *observer) memoryNow() float64 {
	pid := o.agent.processID()
	if pid == 0 {
		return 0
	}
	usage, err := measure.ReadProcess(pid)
	if err != nil {
		return 0 // it has just ended
	}
	return usage.Resident - usage.File
}

// stopObserving ends the measurement. It may be called again.
func (o *observer) stopObserving() {
	o.cancel()
	o.running.Wait()
}
