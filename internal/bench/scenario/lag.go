package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/bench/measure"
)

const (
	// lagEvery is how often what people are told is compared with what is.
	lagEvery = 250 * time.Millisecond
	// templatesEvery is how often templates are read for it.
	templatesEvery = 2 * time.Second
)

// count of an application's ready clusters at a moment.
type count struct {
	at    time.Time
	ready int
}

// lagging tells how far what people are told lags behind what is: by the shortest time
// in which the truth may have been what is told. Between two looks the truth is not
// known, but rows turn at a known speed, so that it went no farther than that.
type lagging struct {
	stage   *stage
	bundles *bundles
	apps    []app

	truth   map[string][]count // by application
	counts  measure.Distribution
	said    measure.Distribution // by templates
	worst   string
	longest time.Duration

	cancel context.CancelFunc
	done   sync.WaitGroup
	err    error
}

// newLagging of applications whose Bundles there are.
func (s *stage) newLagging(b *bundles, apps []app) *lagging {
	return &lagging{stage: s, bundles: b, apps: apps, truth: map[string][]count{}}
}

// start to compare until stop.
func (l *lagging) start(ctx context.Context) {
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
			if l.err = l.look(ctx); l.err == nil && time.Since(last) >= templatesEvery {
				last = time.Now()
				l.err = l.lookAtTemplates(ctx)
			}
			if ctx.Err() != nil {
				l.err = nil
			}
		}
	})
}

// stop comparing, and put what was found.
func (l *lagging) stop(name string) error {
	l.cancel()
	l.done.Wait()
	if l.err != nil {
		return fmt.Errorf("compare what is told with what is: %w", l.err)
	}
	r := l.stage.report
	r.Distribution(name+"_counts_lag", l.counts.Values())
	r.Distribution(name+"_templates_lag", l.said.Values())
	within := func(values []float64) bool {
		return len(values) > 0 && values[len(values)-1] <= summariesWithin.Seconds()
	}
	r.Timed("while health flips, what Bundles and templates say was true within the last 10 s",
		within(l.counts.Values()) && within(l.said.Values()), "%d looks at Bundles and %d at templates, the most that one was behind: %.1f s (%s)",
		len(l.counts.Values()), len(l.said.Values()), l.longest.Seconds(), l.worst)
	return nil
}

// now gives the ready clusters of each application in truth.
func (l *lagging) now(ctx context.Context) (map[string]int, error) {
	sum := map[string]int{}
	for _, a := range l.stage.simulators() {
		rows, err := a.control.Healthy(ctx)
		if err != nil {
			return nil, err
		}
		for uid, n := range rows {
			sum[uid] += n
		}
	}
	by := make(map[string]int, len(l.apps))
	for _, a := range l.apps {
		by[a.key()] = sum[l.bundles.get(a.key()).uid]
	}
	return by, nil
}

// look at what Bundles say, and at the truth.
func (l *lagging) look(ctx context.Context) error {
	said := make(map[string]int, len(l.apps))
	for _, a := range l.apps {
		said[a.key()] = int(l.bundles.get(a.key()).status.Clusters.Ready)
	}
	truth, err := l.now(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	for _, a := range l.apps {
		key := a.key()
		l.truth[key] = append(l.truth[key], count{at, truth[key]})
		l.note(&l.counts, lag(l.truth[key], l.speed(a), said[key], said[key]), func() string {
			return fmt.Sprintf("Bundle %s said %d, and %d were ready", key, said[key], truth[key])
		})
	}
	return nil
}

// lookAtTemplates compares their statuses: of a duplicated Deployment, that of the
// least finished cluster.
func (l *lagging) lookAtTemplates(ctx context.Context) error {
	said, err := l.templates(ctx)
	if err != nil {
		return err
	}
	for _, a := range l.apps {
		key, all := a.key(), l.stage.clustersOf(a)
		from, to := -1, -1
		switch said[key] {
		case 0:
			from, to = 0, all-1
		case replicas:
			from, to = all, all
		}
		l.note(&l.said, lag(l.truth[key], l.speed(a), from, to), func() string {
			return fmt.Sprintf("Deployment %s said %d replicas ready", key, said[key])
		})
	}
	return nil
}

// templates gives the ready replicas that the Deployments say.
func (l *lagging) templates(ctx context.Context) (map[string]int, error) {
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

// note a lag.
func (l *lagging) note(d *measure.Distribution, lag time.Duration, of func() string) {
	d.Add(lag)
	if lag > l.longest {
		l.longest, l.worst = lag, of()
	}
}

// speed at which rows of the application turn, a second.
func (l *lagging) speed(a app) float64 {
	return float64(l.stage.clustersOf(a)) * flipsPerMinute / 60
}

// lag is the shortest time, up to the last of the counts, in which they may have been
// in the range. Between two of them they moved at no more than the speed, back and forth.
func lag(counts []count, speed float64, from, to int) time.Duration {
	now := counts[len(counts)-1]
	if now.ready >= from && now.ready <= to {
		return 0
	}
	for i := len(counts) - 2; i >= 0; i-- {
		a, b := counts[i], counts[i+1]
		least, most := min(a.ready, b.ready), max(a.ready, b.ready)
		// Of the rows that turned, some may have turned the one way first. One more
		// or less is at the edge.
		over := 1 + int(max(0, speed*b.at.Sub(a.at).Seconds()-float64(most-least)))/2
		if least-over <= to && most+over >= from {
			return now.at.Sub(a.at)
		}
	}
	return now.at.Sub(counts[0].at) + lagEvery // never, while anybody looked
}

// right tells whether all that people are told is so now.
func (l *lagging) right(ctx context.Context) (ok bool, detail string, err error) {
	truth, err := l.now(ctx)
	if err != nil {
		return false, "", err
	}
	for _, a := range l.apps {
		st := l.bundles.get(a.key()).status
		if n := truth[a.key()]; int(st.Clusters.Ready) != n || st.ReadyReplicas != int64(n*replicas) {
			return false, fmt.Sprintf("Bundle %s says %d clusters and %d replicas ready, and %d clusters are", a.key(), st.Clusters.Ready, st.ReadyReplicas, n), nil
		}
	}
	said, err := l.templates(ctx)
	if err != nil {
		return false, "", err
	}
	for _, a := range l.apps {
		want := 0
		if truth[a.key()] == l.stage.clustersOf(a) {
			want = replicas
		}
		if said[a.key()] != want {
			return false, fmt.Sprintf("Deployment %s says %d replicas ready, and its least finished cluster has %d", a.key(), said[a.key()], want), nil
		}
	}
	return true, fmt.Sprintf("%d Bundles and as many templates", len(l.apps)), nil
}
