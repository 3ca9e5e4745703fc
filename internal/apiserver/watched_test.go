package apiserver_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"atoll.dev/atoll/internal/testwait"
)

// follower is a client that lists, and applies to that what watches tell: it goes on from the
// last version that it heard, or from an earlier one, and lists again after 410 alone.
type follower struct {
	*user
	namespace string
	random    *rand.Rand

	mu   sync.Mutex
	has  map[string]string
	runs map[string]int // how often what happened
}

// podShape of a pod, as far as it is compared.
func podShape(p *corev1.Pod) string { return p.Labels["n"] + "/" + p.Status.Message }

func statesOf(list *corev1.PodList) map[string]string {
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = podShape(&list.Items[i])
	}
	return out
}

func (f *follower) countEvents(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[what]++
}

// run until ctx ends.
func (f *follower) run(ctx context.Context) {
	version, earlier := "", []string(nil)
	for ctx.Err() == nil {
		if version == "" {
			list, err := f.kube.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			f.countEvents("lists")
			f.mu.Lock()
			f.has = statesOf(list)
			f.mu.Unlock()
			version, earlier = list.ResourceVersion, nil
		}
		w, err := f.kube.CoreV1().Pods(f.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			version = ""
			continue
		}
		f.countEvents("watches")
		version, earlier = f.followWatch(w, version, earlier)
		w.Stop()
		if version != "" && len(earlier) > 0 && f.random.IntN(2) == 0 {
			version = earlier[f.random.IntN(len(earlier))]
		}
	}
}

// followWatch a watch for some events. It gives the version to go on from, empty to list again.
func (f *follower) followWatch(w watch.Interface, version string, earlier []string) (string, []string) {
	for left := 1 + f.random.IntN(20); ; left-- {
		if left == 0 {
			return version, earlier
		}
		e, ok := <-w.ResultChan()
		if !ok {
			return version, earlier
		}
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			f.countEvents("ends")
			return "", nil
		}
		f.mu.Lock()
		if f.has[pod.Name] = podShape(pod); e.Type == watch.Deleted {
			delete(f.has, pod.Name)
		}
		f.mu.Unlock()
		version = pod.ResourceVersion
		earlier = append(earlier, version)
	}
}

// cutting is a connection that breaks after some bytes, in the midst of whatever they are.
type cutting struct {
	net.Conn
	left int
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.left <= 0 {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// placeBundle adds rows of a member in a namespace, or removes them.
func (m *members) placeBundle(namespace, name string, rows bool) {
	m.mu.Lock()
	m.placed[namespace] = slices.DeleteFunc(slices.Clone(m.placed[namespace]), func(n string) bool { return n == name })
	if rows {
		m.placed[namespace] = append(m.placed[namespace], name)
	}
	m.mu.Unlock()
	m.view.WakeWatches()
}

// upheaval is what happens to members.
type upheaval struct {
	*user
	namespace string
	names     []string
	random    *rand.Rand
	n         int
}

func (u *upheaval) randomMember() string { return u.names[u.random.IntN(len(u.names))] }

// newPod is another state of one of few.
func (u *upheaval) newPod(name string) *corev1.Pod {
	u.n++
	p := newPod(u.namespace, name, map[string]string{"n": strconv.Itoa(u.n)})
	return p
}

// put some pod into a member, or take it away.
func (u *upheaval) put(member, name string) {
	fleet.withAgent(member, func(a *agent) {
		switch _, there := a.pods[u.namespace+"/"+name]; {
		case !there:
			a.put(watch.Added, u.newPod(name))
		case u.random.IntN(3) == 0:
			a.put(watch.Deleted, u.newPod(name))
		default:
			a.put(watch.Modified, u.newPod(name))
		}
	})
}

// playStep something.
func (u *upheaval) playStep() {
	name, member := fmt.Sprintf("p%d", u.random.IntN(4)), u.randomMember()
	switch u.random.IntN(14) {
	case 0:
		fleet.removeMember(member)
	case 1, 2:
		fleet.withAgent(member, func(a *agent) { a.away = false })
	case 3: // its agent starts again
		fleet.removeMember(member)
		fleet.withAgent(member, func(a *agent) { a.away = false })
	case 4: // it no longer knows what was before
		if u.random.IntN(3) == 0 {
			fleet.withAgent(member, func(a *agent) { a.oldest = a.version + 1 })
		}
	case 5:
		fleet.placeBundle(u.namespace, member, false)
	case 6, 7:
		fleet.placeBundle(u.namespace, member, true)
	case 8: // connections break in the midst of what they carry
		fleet.withAgent(member, func(a *agent) { a.cut = u.random.IntN(3000) })
	case 9: // it moves
		fleet.put(member, watch.Deleted, u.newPod(name))
		fleet.put(u.randomMember(), watch.Added, u.newPod(name))
	default:
		u.put(member, name)
	}
}

// awaitQuiet all members, with rows in the namespace.
func (u *upheaval) awaitQuiet() {
	for _, name := range u.names {
		fleet.withAgent(name, func(a *agent) { a.away, a.cut = false, 0 })
		fleet.placeBundle(u.namespace, name, true)
	}
}

// TestWatchesComeToWhatListsGive: whatever happens to members during a watch, in whatever order
// their events arrive, and wherever a client's watch resumes.
func TestWatchesComeToWhatListsGive(t *testing.T) {
	first, seeds := uint64(1), uint64(6)
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		seeds = 1
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			comesTo(t, seed)
		})
	}
}

func comesTo(t *testing.T, seed uint64) {
	me := newAdmin(t, hub)
	u := &upheaval{user: me, namespace: me.createNamespace("upheaval"), random: rand.New(rand.NewPCG(seed, 1))}
	for i := range 4 {
		u.names = append(u.names, fmt.Sprintf("s%d-%d", seed, i))
	}
	fleet.joinMembers(t, u.namespace, u.names...)
	f := &follower{user: me, namespace: u.namespace, random: rand.New(rand.NewPCG(seed, 2)), runs: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.run(ctx) })
	defer running.Wait()
	defer cancel()
	pods := me.kube.CoreV1().Pods(u.namespace)
	for range 60 {
		for range 1 + u.random.IntN(4) {
			u.playStep()
		}
		// Which also lets the follower come along.
		if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil && !apierrors.IsServiceUnavailable(err) {
			t.Fatal(err)
		}
	}
	u.awaitQuiet()
	began := time.Now()
	testwait.Until(t, fmt.Sprintf("with seed %d, the watch comes to what the list gives", seed), func(ctx context.Context) (bool, string) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return maps.Equal(f.has, statesOf(list)), fmt.Sprintf("watched %v, listed %v, after %v", f.has, statesOf(list), f.runs)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%v, then %v", f.runs, time.Since(began).Round(time.Millisecond))
}

// TestWatchesOutliveRows: a cluster's objects are deleted after the row that ordered it, and a
// watch that resumes from before gets the event. An event that it could not get, because no row
// named the cluster, ends the watch when a row does.
func TestWatchesOutliveRows(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("outlived")
	fleet.joinMembers(t, ns, "molde", "chiba")
	pods := u.kube.CoreV1().Pods(ns)
	fleet.put("molde", watch.Added, newPod(ns, "a", nil))
	fleet.put("molde", watch.Added, newPod(ns, "b", nil))
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fleet.placeBundle(ns, "molde", false)
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	fleet.put("molde", watch.Deleted, newPod(ns, "a", nil))
	expectEvents(t, w, "DELETED a.molde")
	fleet.put("molde", watch.Modified, newPod(ns, "b", map[string]string{"x": "y"}))
	fleet.put("molde", watch.Added, newPod(ns, "c", nil))
	fleet.put("molde", watch.Deleted, newPod(ns, "c", nil))
	last := expectEvents(t, w, "DELETED c.molde")
	fleet.placeBundle(ns, "molde", true)
	expectEvents(t, w, "ERROR 410")

	// Another watch that resumes there gets the event now.
	again, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: last.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	expectEvents(t, again, "MODIFIED b.molde")
}

// TestRowsThatGoOnChangingPutNothingOff: in a large fleet there are always some that do.
func TestRowsThatGoOnChangingPutNothingOff(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("busy")
	fleet.joinMembers(t, ns, "skien")
	w, err := u.kube.CoreV1().Pods(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for ctx.Err() == nil {
			<-every.C
			fleet.view.WakeWatches()
		}
	})
	fleet.joinMembers(t, ns, "otaru")
	fleet.put("otaru", watch.Added, newPod(ns, "a", nil))
	expectEvents(t, w, "ADDED a.otaru")
}

// TestAThousandMembersAnswerAtOnce holds what is promised of a list over all of them.
func TestAThousandMembersAnswerAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand members take their time")
	}
	u := newAdmin(t, hub)
	ns := u.createNamespace("many")
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("many-%d", i))
	}
	fleet.joinMembers(t, ns, all...)
	for _, name := range all {
		for i := range 5 {
			fleet.put(name, watch.Added, newPod(ns, fmt.Sprintf("web-%d", i), nil))
		}
	}
	// The first run uses new connections, the later ones reuse them. The times include other load
	// of the machine: one run that keeps the bound shows that it can be kept.
	best := time.Hour
	for round := 0; round < 2 || round < 6 && best > 3*time.Second; round++ {
		began := time.Now()
		list, err := u.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		took := time.Since(began)
		if err != nil || len(list.Items) < 5000 {
			t.Fatalf("%d pods, %v", len(list.Items), err)
		}
		t.Logf("%d pods of %d members in %v", len(list.Items), len(all), took.Round(time.Millisecond))
		best = min(best, took)
	}
	if best > 3*time.Second {
		t.Errorf("it took %v", best)
	}
	watchedAtOnce(t, u, ns, all)
}

// measureMemory of this process: goroutines, and bytes of heap and stacks in use.
func measureMemory() (goroutines int, bytes uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
}

// watchedAtOnce: what one watch over all members costs, with both ends of all streams in this
// process, and that nothing of it stays.
func watchedAtOnce(t *testing.T, u *user, ns string, all []string) {
	t.Helper()
	streams := func() (n int) {
		for _, r := range fleet.takeRequests() {
			if strings.Contains(r, "watch=true") {
				n++
			}
		}
		return n
	}
	list, err := u.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	streams()
	before, _ := measureMemory()
	began := time.Now()
	w, err := u.kube.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	opened := 0
	testwait.Until(t, "all members are watched", func(context.Context) (bool, string) {
		opened += streams()
		return opened >= len(all), fmt.Sprint(opened)
	})
	took := time.Since(began)
	fleet.put(all[len(all)/2], watch.Added, newPod(ns, "late", nil))
	expectEvents(t, w, "ADDED late."+all[len(all)/2])
	during, full := measureMemory()
	if opened += streams(); opened != len(all) {
		t.Errorf("%d members are watched by %d streams", len(all), opened)
	}
	w.Stop()
	testwait.Until(t, "nothing of the watch stays", func(context.Context) (bool, string) {
		after := runtime.NumGoroutine()
		return after < before+len(all)/20, fmt.Sprintf("%d goroutines, of %d before and %d during the watch", after, before, during)
	})
	after, empty := measureMemory()
	goroutines, bytes := float64(during-after)/float64(len(all)), float64(int64(full)-int64(empty))/float64(len(all))
	t.Logf("one watch of %d members has %d streams, after %v; %.1f goroutines and %.0f kB a member, both ends together", len(all), opened, took.Round(time.Millisecond), goroutines, bytes/1000)
	if goroutines > 12 || bytes > 200_000 {
		t.Errorf("each takes %.1f goroutines and %.0f bytes", goroutines, bytes)
	}
}
