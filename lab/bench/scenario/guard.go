package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"atoll.dev/atoll/lab/process"
)

// processCheckEvery is the interval of checks that the testbed's processes run.
const processCheckEvery = time.Second

// requiredProcesses are the processes that must run.
type requiredProcesses struct {
	mu     sync.Mutex
	byName map[string]process.ProcessSpec
}

// launchRequired starts a process that must run until it is killed or the run ends.
func (s *testbed) launchRequired(p process.ProcessSpec) error {
	if err := p.Start(); err != nil {
		return err
	}
	s.required.mu.Lock()
	defer s.required.mu.Unlock()
	if s.required.byName == nil {
		s.required.byName = map[string]process.ProcessSpec{}
	}
	s.required.byName[p.Name] = p
	return nil
}

// killProcess kills a process for the scenario, after recording its peak memory.
func (s *testbed) killProcess(ctx context.Context, p process.ProcessSpec) error {
	s.hubPeakMemory()
	s.required.mu.Lock()
	delete(s.required.byName, p.Name)
	s.required.mu.Unlock()
	return p.KillProcess(ctx)
}

// missingProcess returns the reason why a required process does not run; nil if all run.
func (c *requiredProcesses) missingProcess() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.byName {
		if err := p.CheckRunning(); err != nil {
			return fmt.Errorf("in the middle of the scenario: %w", err)
		}
	}
	return nil
}

// guardProcesses returns a context that ends when a required process stops; its cause is
// the reason. Waits for the process would never end otherwise. release ends the guard.
func (s *testbed) guardProcesses(ctx context.Context) (guarded context.Context, release func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(processCheckEvery)
		defer tick.Stop()
		for {
			select {
			case <-guarded.Done():
				return
			case <-tick.C:
				if err := s.required.missingProcess(); err != nil {
					cancel(err)
				}
			}
		}
	})
	return guarded, func() {
		cancel(nil)
		done.Wait()
	}
}
