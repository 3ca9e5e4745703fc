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

// healthyReplicasByWorkload counts available replicas over all members, by workload. Members are read
// in turn. Name the sources of a move before its targets, so that moving replicas never
// count as missing.
func (w *demoClusters) healthyReplicasByWorkload(ctx context.Context, members []string) (map[string]int32, error) {
	count := map[string]int32{}
	for _, m := range members {
		deployments, err := w.kube[m].AppsV1().Deployments(shopNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		for _, d := range deployments.Items {
			count[d.Name] += d.Status.AvailableReplicas
		}
		sets, err := w.kube[m].AppsV1().StatefulSets(shopNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		for _, s := range sets.Items {
			count[s.Name] += s.Status.AvailableReplicas
		}
	}
	return count, nil
}

// healthSampler checks that the number of healthy replicas never falls. It owns one
// goroutine between watchHealth and stop.
type healthSampler struct {
	before map[string]int32
	cancel context.CancelFunc
	done   sync.WaitGroup

	// These belong to the goroutine until stop returns.
	lowest  map[string]int32
	samples int
	failed  error
}

// samplePeriod is the interval of the health samples.
const samplePeriod = 50 * time.Millisecond

// watchHealth counts once, and then repeatedly until stop.
func (w *demoClusters) watchHealth(ctx context.Context, members []string) (*healthSampler, error) {
	before, err := w.healthyReplicasByWorkload(ctx, members)
	if err != nil {
		return nil, fmt.Errorf("count healthy replicas: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &healthSampler{before: before, cancel: cancel, lowest: maps.Clone(before)}
	s.done.Go(func() {
		ticks := time.NewTicker(samplePeriod)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			now, err := w.healthyReplicasByWorkload(ctx, members)
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

// stop ends the watch. It returns a summary, and the error if one was found.
func (s *healthSampler) stop() (summary, wrong string) {
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
	return fmt.Sprintf("%d samples, the lowest: %s", s.samples, formatCounts(s.lowest)), ""
}

func formatCounts(m map[string]int32) string {
	text := ""
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", name, m[name])
	}
	return text
}
