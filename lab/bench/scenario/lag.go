package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/lab/bench/measure"
)

const (
	// lagEvery is the interval of comparing shown counts with actual ones.
	lagEvery = 250 * time.Millisecond
	// templatesEvery is the interval of reading templates for the comparison.
	templatesEvery = 2 * time.Second
)

// readyCount is the number of an application's ready clusters at a moment.
type readyCount struct {
	at    time.Time
	ready int
}

// lagWatch measures how far shown counts lag behind actual ones: by the shortest time in
// which the actual count may have equalled the shown one. Between two reads the actual
// count is unknown, but rows turn at a known rate, which bounds its moves.
type lagWatch struct {
	stage   *testbed
	bundles *bundleWatch
	apps    []application

	actualCounts map[string][]readyCount // by application
	bundleLag    measure.Distribution
	templateLag  measure.Distribution // by templates
	worstLag     string
	longestLag   time.Duration

	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// newLagWatch returns the watch of applications whose Bundles exist.
func (s *testbed) newLagWatch(b *bundleWatch, apps []application) *lagWatch {
	return &lagWatch{stage: s, bundles: b, apps: apps, actualCounts: map[string][]readyCount{}}
}

// start compares until stop.
func (l *lagWatch) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.done.Go(func() {
		beat := time.NewTicker(lagEvery)
		defer beat.Stop()
		last := time.Time{}
		for l.err == nil {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			if l.err = l.recordLag(ctx); l.err == nil && time.Since(last) >= templatesEvery {
				last = time.Now()
				l.err = l.recordTemplateLag(ctx)
			}
			if ctx.Err() != nil {
				l.err = nil
			}
		}
	})
}

// stopAndReport ends the comparison and reports the result.
func (l *lagWatch) stopAndReport(name string) error {
	l.cancel()
	l.done.Wait()
	if l.err != nil {
		return fmt.Errorf("compare shown counts with actual ones: %w", l.err)
	}
	r := l.stage.report
	r.AddDistribution(name+"_counts_lag", l.bundleLag.SortedValues())
	r.AddDistribution(name+"_templates_lag", l.templateLag.SortedValues())
	within := func(values []float64) bool {
		return len(values) > 0 && values[len(values)-1] <= summariesWithin.Seconds()
	}
	r.AddMachineDependentCheck("while health flips, the counts of Bundles and templates were true within the last 10 s",
		within(l.bundleLag.SortedValues()) && within(l.templateLag.SortedValues()), "%d looks at Bundles and %d at templates, the most that one was behind: %.1f s (%s)",
		len(l.bundleLag.SortedValues()), len(l.templateLag.SortedValues()), l.longestLag.Seconds(), l.worstLag)
	return nil
}

// readActualReadyClusters returns the ready clusters of each application in the members.
func (l *lagWatch) readActualReadyClusters(ctx context.Context) (map[string]int, error) {
	sum := map[string]int{}
	for _, a := range l.stage.agentFleets() {
		rows, err := a.control.CountHealthy(ctx)
		if err != nil {
			return nil, err
		}
		for uid, n := range rows {
			sum[uid] += n
		}
	}
	by := make(map[string]int, len(l.apps))
	for _, a := range l.apps {
		by[a.bundleKey()] = sum[l.bundles.get(a.bundleKey()).uid]
	}
	return by, nil
}

// recordLag compares the shown counts with the actual ones.
func (l *lagWatch) recordLag(ctx context.Context) error {
	said := make(map[string]int, len(l.apps))
	for _, a := range l.apps {
		said[a.bundleKey()] = int(l.bundles.get(a.bundleKey()).status.Clusters.Ready)
	}
	truth, err := l.readActualReadyClusters(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	for _, a := range l.apps {
		key := a.bundleKey()
		l.actualCounts[key] = append(l.actualCounts[key], readyCount{at, truth[key]})
		l.noteLag(&l.bundleLag, shortestLag(l.actualCounts[key], l.readinessFlipsPerSecond(a), said[key], said[key]), func() string {
			return fmt.Sprintf("Bundle %s reported %d, and %d were ready", key, said[key], truth[key])
		})
	}
	return nil
}

// recordTemplateLag compares the statuses of templates: a duplicated Deployment shows its
// least finished cluster.
func (l *lagWatch) recordTemplateLag(ctx context.Context) error {
	said, err := l.readTemplateReadyReplicas(ctx)
	if err != nil {
		return err
	}
	for _, a := range l.apps {
		key, all := a.bundleKey(), l.stage.countClustersOf(a)
		from, to := -1, -1
		switch said[key] {
		case 0:
			from, to = 0, all-1
		case replicasPerApp:
			from, to = all, all
		}
		l.noteLag(&l.templateLag, shortestLag(l.actualCounts[key], l.readinessFlipsPerSecond(a), from, to), func() string {
			return fmt.Sprintf("Deployment %s reported %d replicas ready", key, said[key])
		})
	}
	return nil
}

// readTemplateReadyReplicas returns the ready replicas in the statuses of the Deployments.
func (l *lagWatch) readTemplateReadyReplicas(ctx context.Context) (map[string]int, error) {
	said := make(map[string]int, len(l.apps))
	for i, a := range l.apps {
		if i > 0 && l.apps[i-1].namespace == a.namespace {
			continue
		}
		list, err := l.stage.kube.AppsV1().Deployments(a.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list Deployments: %w", err)
		}
		for _, d := range list.Items {
			said[d.Namespace+"/"+d.Name] = int(d.Status.ReadyReplicas)
		}
	}
	return said, nil
}

// noteLag records a lag.
func (l *lagWatch) noteLag(d *measure.Distribution, lag time.Duration, of func() string) {
	d.Add(lag)
	if lag > l.longestLag {
		l.longestLag, l.worstLag = lag, of()
	}
}

// readinessFlipsPerSecond returns how many rows of the application turn per second.
func (l *lagWatch) readinessFlipsPerSecond(a application) float64 {
	return float64(l.stage.countClustersOf(a)) * flipsPerMinute / 60
}

// shortestLag returns the shortest time, up to the last of the counts, in which the count
// may have been in the range. Between two counts it moved by the speed at most, back and
// forth.
func shortestLag(counts []readyCount, speed float64, from, to int) time.Duration {
	now := counts[len(counts)-1]
	if now.ready >= from && now.ready <= to {
		return 0
	}
	for i := len(counts) - 2; i >= 0; i-- {
		a, b := counts[i], counts[i+1]
		least, most := min(a.ready, b.ready), max(a.ready, b.ready)
		// Some of the turned rows may have turned the other way first. One row more or
		// less is at the edge.
		over := 1 + int(max(0, speed*b.at.Sub(a.at).Seconds()-float64(most-least)))/2
		if least-over <= to && most+over >= from {
			return now.at.Sub(a.at)
		}
	}
	return now.at.Sub(counts[0].at) + lagEvery // unreachable while the watch runs
}

// areShownCountsCorrect reports whether all shown counts are correct now.
func (l *lagWatch) areShownCountsCorrect(ctx context.Context) (ok bool, detail string, err error) {
	truth, err := l.readActualReadyClusters(ctx)
	if err != nil {
		return false, "", err
	}
	for _, a := range l.apps {
		st := l.bundles.get(a.bundleKey()).status
		if n := truth[a.bundleKey()]; int(st.Clusters.Ready) != n || st.ReadyReplicas != int64(n*replicasPerApp) {
			return false, fmt.Sprintf("Bundle %s shows %d clusters and %d replicas ready, and %d clusters are", a.bundleKey(), st.Clusters.Ready, st.ReadyReplicas, n), nil
		}
	}
	said, err := l.readTemplateReadyReplicas(ctx)
	if err != nil {
		return false, "", err
	}
	for _, a := range l.apps {
		want := 0
		if truth[a.bundleKey()] == l.stage.countClustersOf(a) {
			want = replicasPerApp
		}
		if said[a.bundleKey()] != want {
			return false, fmt.Sprintf("Deployment %s shows %d replicas ready, and its least finished cluster has %d", a.bundleKey(), said[a.bundleKey()], want), nil
		}
	}
	return true, fmt.Sprintf("%d Bundles and as many templates", len(l.apps)), nil
}
