package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"atoll.dev/atoll/internal/lab/process"
)

// lookAtProcesses is how often it is asked whether the stage's processes run.
const lookAtProcesses = time.Second

// cast are the processes that have to run.
type cast struct {
	mu   sync.Mutex
	must map[string]process.Spec
}

// launch a process that has to run until it is killed, or the run ends.
func (s *stage) launch(p process.Spec) error {
	if err := p.Start(); err != nil {
		return err
	}
	s.cast.mu.Lock()
	defer s.cast.mu.Unlock()
	if s.cast.must == nil {
		s.cast.must = map[string]process.Spec{}
	}
	s.cast.must[p.Name] = p
	return nil
}

// kill a process, as the scenario has it, once it is known how much memory it has had.
func (s *stage) kill(ctx context.Context, p process.Spec) error {
	s.hubPeak()
	s.cast.mu.Lock()
	delete(s.cast.must, p.Name)
	s.cast.mu.Unlock()
	return p.Kill(ctx)
}

// missing is why a process that has to run does not; nil: all run.
func (c *cast) missing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.must {
		if err := p.Ended(); err != nil {
			return fmt.Errorf("in the middle of the scenario: %w", err)
		}
	}
	return nil
}

// guard gives a context that ends, with the reason as its cause, as soon as a process that
// has to run does not: who waits for what it does would wait in vain. release ends the
// guard.
func (s *stage) guard(ctx context.Context) (guarded context.Context, release func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(lookAtProcesses)
		defer tick.Stop()
		for {
			select {
			case <-guarded.Done():
				return
			case <-tick.C:
				if err := s.cast.missing(); err != nil {
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
