package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// healthy counts available replicas over all members, by workload. Members are read
// in turn, so name those that something leaves before those that it goes to: what
// comes before it goes is then never counted as missing.
func (w *world) healthy(ctx context.Context, members []string) (map[string]int32, error) {
	count := map[string]int32{}
	for _, m := range members {
		deployments, err := w.kube[m].AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		for _, d := range deployments.Items {
			count[d.Name] += d.Status.AvailableReplicas
		}
		sets, err := w.kube[m].AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		for _, s := range sets.Items {
			count[s.Name] += s.Status.AvailableReplicas
		}
	}
	return count, nil
}

// sampler watches that healthy replicas never get fewer than they were. It owns one
// goroutine between watchHealth and stop.
type sampler struct {
	before map[string]int32
	cancel context.CancelFunc
	done   sync.WaitGroup

	// The goroutine's until stop returned.
	lowest  map[string]int32
	samples int
	failed  error
}

// samplePeriod is how often health is looked at.
const samplePeriod = 50 * time.Millisecond

// watchHealth counts once, and then goes on until stop.
func (w *world) watchHealth(ctx context.Context, members []string) (*sampler, error) {
	before, err := w.healthy(ctx, members)
	if err != nil {
		return nil, fmt.Errorf("count healthy replicas: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{before: before, cancel: cancel, lowest: maps.Clone(before)}
	s.done.Go(func() {
		ticks := time.NewTicker(samplePeriod)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			now, err := w.healthy(ctx, members)
			if err != nil {
				if ctx.Err() == nil {
					s.failed = err
				}
				continue
			}
			s.samples++
			for name := range s.before {
				s.lowest[name] = min(s.lowest[name], now[name])
			}
		}
	})
	return s, nil
}

// stop ends the watch, and gives a sentence about it and what was wrong, if anything.
func (s *sampler) stop() (summary, wrong string) {
	s.cancel()
	s.done.Wait()
	for _, name := range slices.Sorted(maps.Keys(s.before)) {
		if s.lowest[name] < s.before[name] {
			return "", fmt.Sprintf("%s had %d healthy replicas before, and %d at the lowest", name, s.before[name], s.lowest[name])
		}
	}
	switch {
	case s.failed != nil:
		return "", fmt.Sprintf("healthy replicas could not be counted: %v", s.failed)
	case s.samples < 10:
		return "", fmt.Sprintf("only %d samples were taken", s.samples)
	}
	return fmt.Sprintf("%d samples, the lowest: %s", s.samples, counts(s.lowest)), ""
}

func counts(m map[string]int32) string {
	text := ""
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", name, m[name])
	}
	return text
}
