package logs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/pods"
	"atoll.dev/atoll/internal/pause"
)

const (
	// againFirst is the pause before a log that broke off is requested again; it doubles up to
	// againMost.
	againFirst = time.Second
	againMost  = 15 * time.Second
)

// key of a container of a pod.
type key struct {
	pod       types.UID
	container string
}

// logFollower follows the containers of all pods of a Query.
type logFollower struct {
	*logReader
	query pods.PodQuery
	stop  context.CancelFunc
	// failure that ended it; for the goroutine that waits for running.
	failing sync.Once
	failure error

	running sync.WaitGroup
	mu      sync.Mutex
	// followed now are these containers.
	followed map[key]bool
	// done has the last run, by its ID, that has been followed to its end.
	done map[key]string
	// left out because too many streams are open: it has been printed.
	left bool
	// away are clusters that broke off.
	away map[string]bool
	// read and refused count containers.
	read, refused int
}

// followPods follows the pods that were found, and those that come.
func (r *logReader) followPods(ctx context.Context, q pods.PodQuery, found []corev1.Pod, version string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f := &logFollower{logReader: r, query: q, stop: stop, followed: map[key]bool{}, done: map[key]string{}, away: map[string]bool{}}
	if len(found) == 0 {
		r.printNote("no pod of %s runs yet; waiting for the first", q.Subject)
	}
	f.start(ctx, found)
	f.keepWatchingPods(ctx, version)
	f.running.Wait()
	if f.failure == nil && f.read == 0 && f.refused > 0 {
		return fmt.Errorf("%w; the reasons are above", errNothing)
	}
	return f.failure
}

// fail ends all, with the first reason.
func (f *logFollower) fail(err error) {
	f.failing.Do(func() { f.failure = err })
	f.stop()
}

// keepWatchingPods watches for pods that come, until the end.
func (f *logFollower) keepWatchingPods(ctx context.Context, version string) {
	again := againFirst
	for ctx.Err() == nil {
		err := f.watchPods(ctx, version)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			again = againFirst
		}
		if !pause.WaitFor(ctx, again) {
			return
		}
		again = min(2*again, againMost)
		found, now, err := f.query.List(ctx, f.client)
		if err != nil {
			if !pods.IsTemporary(err) {
				f.fail(err)
			}
			continue
		}
		version = now
		f.start(ctx, found)
	}
}

// watchPods watches events of pods from a version on, until the watch ends. An error is that it did not begin.
func (f *logFollower) watchPods(ctx context.Context, version string) error {
	options := f.query.ListOptions()
	options.ResourceVersion = version
	w, err := f.client.Dynamic.Resource(client.Pods).Namespace(f.query.Namespace).Watch(ctx, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if u, ok := e.Object.(*unstructured.Unstructured); ok && (e.Type == watch.Added || e.Type == watch.Modified) {
			pod, err := client.ConvertTo[corev1.Pod](u)
			if err != nil {
				return err
			}
			f.start(ctx, []corev1.Pod{*pod})
		}
	}
	return nil
}

// start starts to follow what is not followed yet, of containers that have written something.
func (f *logFollower) start(ctx context.Context, found []corev1.Pod) {
	sources, err := f.o.selectSources(found)
	if err != nil {
		return // pods that come without the container that was named are left out
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range sources {
		k := key{s.pod.UID, s.container}
		run, runs := startedContainerRun(s.pod, s.container)
		if !runs || f.followed[k] || f.done[k] == run {
			continue
		}
		if len(f.followed) >= f.o.maxStreams {
			if !f.left {
				f.left = true
				f.printNote("%d containers are followed, and no more at once: %s, and others, are not; narrow it with --clusters, -l or -c, or allow more with --max-log-requests", len(f.followed), s.linePrefix())
			}
			continue
		}
		f.followed[k] = true
		f.running.Go(func() { f.tailContainer(ctx, s) })
	}
}

// startedContainerRun returns which run of a container there is to be read; false where it has not begun.
func startedContainerRun(pod *corev1.Pod, container string) (string, bool) {
	s, ok := pods.ContainerStatusOf(pod, container)
	switch {
	case !ok:
		// A template's status may have no containers, and its cluster has.
		return "", pods.ClusterOf(pod) == "" && pod.Status.Phase != ""
	case s.State.Running != nil:
		return s.ContainerID, true
	case s.State.Terminated != nil:
		return s.ContainerID, true
	}
	return "", false
}

// tailContainer follows one container to its end, through all that breaks off.
func (f *logFollower) tailContainer(ctx context.Context, s logSource) {
	var seen time.Time
	again := againFirst
	for {
		got, err := f.readStream(ctx, s, &seen)
		if ctx.Err() != nil {
			return
		}
		if got {
			again = againFirst
		}
		pod, now, err := f.checkContainer(ctx, s, err)
		switch now.what {
		case over:
			f.markEnded(s, now.run)
			if pod != nil {
				f.start(ctx, []corev1.Pod{*pod}) // it may run again already
			}
			return
		case refused:
			f.printNote("%s cannot be read: %v", s.linePrefix(), err)
			f.mu.Lock()
			f.refused++
			f.mu.Unlock()
			f.markEnded(s, now.run)
			return
		case away:
			f.reportDisconnected(s.clusterName(), err)
		}
		if !pause.WaitFor(ctx, again) {
			return
		}
		again = min(2*again, againMost)
	}
}

// readStream reads what one stream gives, and reports whether it gave anything.
func (f *logFollower) readStream(ctx context.Context, s logSource, seen *time.Time) (got bool, err error) {
	body, err := f.logReader.open(ctx, s, *seen)
	if err != nil {
		return false, err
	}
	f.reportReconnected(s.clusterName())
	defer body.Close()
	lines := newScanner(body, *seen)
	for {
		l, ok := lines.next()
		if !ok {
			return got, lines.scanError()
		}
		got = true
		if l.at.After(*seen) {
			*seen = l.at
		}
		if err := f.print(s, l); err != nil {
			f.fail(fmt.Errorf("write what was read: %w", err))
			return got, err
		}
	}
}

// streamVerdict is the verdict on a container of which the stream ended.
type streamVerdict struct {
	what int
	run  string
}

const (
	goesOn  = iota // it runs: the stream broke off
	over           // it, or its pod, has ended
	away           // unknown: its cluster is disconnected
	refused        // it is not to be read
)

// checkContainer looks at what became of a container whose stream ended, with an error or without.
func (f *logFollower) checkContainer(ctx context.Context, s logSource, failed error) (*corev1.Pod, streamVerdict, error) {
	pod, err := client.Get[corev1.Pod](ctx, f.client, client.Pods, s.pod.Namespace, s.pod.Name)
	now := decideAfterStreamEnd(s, pod, err, failed)
	if err != nil {
		return nil, now, cmp.Or(failed, err)
	}
	return pod, now, failed
}

// decideAfterStreamEnd decides by the pod as it is now, or by the error that hides it.
func decideAfterStreamEnd(s logSource, pod *corev1.Pod, err, failed error) streamVerdict {
	known, _ := startedContainerRun(s.pod, s.container)
	switch {
	case apierrors.IsNotFound(err):
		return streamVerdict{over, known}
	case err != nil:
		return streamVerdict{classifyStreamFailure(err), known}
	case pod.UID != s.pod.UID:
		return streamVerdict{over, known}
	}
	state, ok := pods.ContainerStatusOf(pod, s.container)
	switch {
	case failed != nil:
		return streamVerdict{classifyStreamFailure(failed), state.ContainerID}
	case ok && state.State.Running != nil && state.ContainerID == known:
		return streamVerdict{goesOn, known}
	case ok && state.State.Terminated == nil:
		return streamVerdict{over, known} // what runs next is followed when it is seen to run
	}
	return streamVerdict{over, state.ContainerID}
}

// classifyStreamFailure returns away for an error that may pass, and refused for others.
func classifyStreamFailure(err error) int {
	if pods.IsTemporary(err) {
		return away
	}
	return refused
}

// markEnded: the container is followed no more, up to a run.
func (f *logFollower) markEnded(s logSource, run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := key{s.pod.UID, s.container}
	delete(f.followed, k)
	f.done[k] = run
	switch {
	case len(f.followed) > 0:
	case f.query.One, f.read == 0 && f.refused > 0:
		f.stop()
	}
}

// reportDisconnected prints once that a cluster is away.
func (f *logFollower) reportDisconnected(cluster string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.away[cluster] {
		f.away[cluster] = true
		f.printNote("%s: its logs broke off, and are requested again until it is back: %v", clusterText(cluster), why)
	}
}

// reportReconnected prints that a cluster is back that was away.
func (f *logFollower) reportReconnected(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
	if f.away[cluster] {
		delete(f.away, cluster)
		f.printNote("%s is back: its logs go on", clusterText(cluster))
	}
}

func clusterText(cluster string) string {
	if cluster == "" {
		return "the hub"
	}
	return "cluster " + cluster
}
