package gatechecks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// fakeHub is the tables that a Checker reads, and what it does.
type fakeHub struct {
	mu       sync.Mutex
	bundles  map[string]state.Bundle
	notify   func(uid string)
	settings func(name string)
	revised  func(bundleUID string)
	latest   string
	freeze   *v1alpha1.ChangeFreeze
	measured []string
	outcome  func(id gateID) rollout.Outcome
	changed  []string
	events   []string
}

func (h *fakeHub) Get(uid string) (state.Bundle, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.bundles[uid]
	return b, ok
}

func (h *fakeHub) List() []state.Bundle {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.bundles))
}

func (h *fakeHub) Subscribe(fn func(uid string)) { h.notify = fn }

// fakeSettings are the settings of a hub.
type fakeSettings struct{ hub *fakeHub }

func (s fakeSettings) Freeze() *v1alpha1.ChangeFreeze {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.hub.freeze
}

func (s fakeSettings) Subscribe(fn func(name string)) { s.hub.settings = fn }

// fakeRevisions are the Revisions of a hub.
type fakeRevisions struct{ hub *fakeHub }

func (r fakeRevisions) LatestOfBundle(string) (*enginev1.Revision, bool) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(r.hub.latest, "r2")}}, true
}

func (r fakeRevisions) Subscribe(fn func(bundleUID string)) { r.hub.revised = fn }

func (h *fakeHub) Warn(_ enginev1.BundleRef, reason atoll.Reason, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, string(reason)+" "+message)
}

func (h *fakeHub) setBundle(uid string, edit func(b *state.Bundle)) {
	h.mu.Lock()
	b := h.bundles[uid]
	b.Ref = enginev1.BundleRef{UID: uid, Namespace: "shop", Name: uid}
	edit(&b)
	h.bundles[uid] = b
	h.mu.Unlock()
	h.notify(uid)
}

// editFields changes what the hub holds, without a notice.
func (h *fakeHub) editFields(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// readChanged returns the Bundles that are decided again since the start, or since the list was emptied.
func (h *fakeHub) readChanged() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.changed)
}

// readEvents returns the Events of Bundles.
func (h *fakeHub) readEvents() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// takeMeasured returns how often each gate was measured since the last call.
func (h *fakeHub) takeMeasured() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for _, m := range h.measured {
		counts[m]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprint(name, " ", counts[name]))
	}
	h.measured = nil
	return strings.Join(out, ", ")
}

func newRollout(hosts ...string) *v1alpha1.Rollout {
	r := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary"}}}
	for _, host := range hosts {
		r.Stages[0].GatesAfter = append(r.Stages[0].GatesAfter, v1alpha1.RolloutGate{Name: host, Prometheus: &v1alpha1.PrometheusGate{
			Server: "https://" + host, Query: "up", SuccessCondition: "result < 0.5", Count: 5, FailureLimit: 1,
		}})
	}
	return r
}

// verdictsOf returns verdicts about the gates, as the placer stores them.
func verdictsOf(r *v1alpha1.Rollout, state v1alpha1.GateState, since time.Time) (out []v1alpha1.GateStatus) {
	for i := range r.Stages[0].GatesAfter {
		g := &r.Stages[0].GatesAfter[i]
		out = append(out, v1alpha1.GateStatus{Stage: "canary", Name: g.Name, Revision: "r2", Hash: rollout.HashGate(g), State: state, Since: metav1.NewTime(since)})
	}
	return out
}

// passTime lets time pass, and waits until all that is due then is done.
func passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runChecker runs a Checker in a bubble of virtual time.
func runChecker(t *testing.T, test func(t *testing.T, h *fakeHub, c *Checker)) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHub{bundles: map[string]state.Bundle{}, outcome: func(gateID) rollout.Outcome { return rollout.Outcome{Kind: rollout.OutcomeSuccess, Text: "0.1"} }}
		c := New(Config{Bundles: h, Revisions: fakeRevisions{h}, Settings: fakeSettings{h}, Secrets: secretStore{}, Events: h, Changed: func(uid string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changed = append(h.changed, uid)
		}})
		c.measure = func(ctx context.Context, _ state.Bundle, id gateID, _ *v1alpha1.RolloutGate) rollout.Outcome {
			h.mu.Lock()
			h.measured = append(h.measured, id.uid+"/"+id.name)
			outcome := h.outcome
			h.mu.Unlock()
			return outcome(id)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = c.Run(ctx) })
		synctest.Wait()
		test(t, h, c)
		stop()
		run.Wait()
		if len(c.tracked)+len(c.byBundle)+len(c.byNamespace)+len(c.busy) > 0 {
			t.Errorf("after the end %v, %v and %v are left", c.tracked, c.byBundle, c.busy)
		}
	})
}

// A gate is measured at its interval while its stored verdict waits or holds, and not before and after.
func TestGatesAreMeasuredWhileTheyWait(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, c *Checker) {
		r := newRollout("prometheus")
		h.setBundle("web", func(b *state.Bundle) { b.Spec.Rollout = r })
		passTime(time.Hour)
		if got := h.takeMeasured(); got != "" {
			t.Errorf("before a verdict waits: %s", got)
		}
		waiting := verdictsOf(r, v1alpha1.GateWaiting, time.Now())
		h.setBundle("web", func(b *state.Bundle) { b.Status.Rollout = &v1alpha1.RolloutStatus{Gates: waiting} })
		passTime(2*time.Minute + 30*time.Second)
		if got := h.takeMeasured(); got != "web/prometheus 3" {
			t.Errorf("in 150 seconds: %s", got)
		}
		if n := c.TallyOf("web", &waiting[0]).Successes; n != 3 {
			t.Errorf("%d successes", n)
		}
		if n := len(h.readChanged()); n != 1 { // its first measurement
			t.Errorf("the placer decides again %d times", n)
		}
		passTime(3 * time.Minute)
		if n := len(h.readChanged()); n != 2 { // it holds
			t.Errorf("the placer decides again %d times", n)
		}
		h.takeMeasured()
		satisfied := slices.Clone(waiting)
		satisfied[0].State = v1alpha1.GateSatisfied
		h.setBundle("web", func(b *state.Bundle) { b.Status.Rollout = &v1alpha1.RolloutStatus{Gates: satisfied} })
		passTime(5 * time.Minute)
		if got := h.takeMeasured(); got != "web/prometheus 5" && got != "web/prometheus 4" {
			t.Errorf("while it holds: %s", got)
		}
		passed := slices.Clone(waiting)
		passed[0].State = v1alpha1.GatePassed
		h.setBundle("web", func(b *state.Bundle) { b.Status.Rollout = &v1alpha1.RolloutStatus{Gates: passed} })
		passTime(time.Hour)
		if got := h.takeMeasured(); got != "" {
			t.Errorf("after it passed: %s", got)
		}
		if c.TallyOf("web", &waiting[0]).Successes != 0 {
			t.Error("the tally of a gate that passed is kept")
		}
		again := verdictsOf(r, v1alpha1.GateWaiting, time.Now())
		h.setBundle("web", func(b *state.Bundle) { b.Status.Rollout = &v1alpha1.RolloutStatus{Gates: again} })
		passTime(5 * time.Second)
		if n := c.TallyOf("web", &again[0]).Successes; n != 1 {
			t.Errorf("a verdict that waits again begins with %d successes", n)
		}
	})
}

// A hub may read the verdict of a gate before the revision that it is about.
func TestARevisionThatIsLateBeginsMeasurements(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, _ *Checker) {
		r := newRollout("prometheus")
		h.editFields(func() { h.latest = "r1" })
		h.setBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: verdictsOf(r, v1alpha1.GateWaiting, time.Now())}
		})
		passTime(time.Minute)
		if got := h.takeMeasured(); got != "" {
			t.Errorf("of another revision: %s", got)
		}
		h.editFields(func() { h.latest = "r2" })
		h.revised("web")
		passTime(30 * time.Second)
		if got := h.takeMeasured(); got != "web/prometheus 1" {
			t.Errorf("of the revision: %q", got)
		}
	})
}

// A gate that fails is measured no more. Each failure is an Event.
func TestAFailedGateIsMeasuredNoMore(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, _ *Checker) {
		h.editFields(func() {
			h.outcome = func(gateID) rollout.Outcome { return rollout.Outcome{Kind: rollout.OutcomeFailure, Text: "0.9"} }
		})
		r := newRollout("prometheus")
		h.setBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout = r
			b.Status.Rollout = &v1alpha1.RolloutStatus{Gates: verdictsOf(r, v1alpha1.GateWaiting, time.Now())}
		})
		passTime(time.Hour)
		if got, changed := h.takeMeasured(), h.readChanged(); got != "web/prometheus 2" || len(changed) != 2 {
			t.Errorf("%s, and %d decisions", got, len(changed))
		}
		if events := h.readEvents(); len(events) != 2 || events[0] != "MeasurementFailed gate prometheus of stage canary measured a failure: 0.9" {
			t.Errorf("the Events are %q", events)
		}
	})
}

// While the rollout is halted nothing is measured, and what was measured before does not count after.
func TestAHaltBeginsAgain(t *testing.T) {
	for name, halt := range map[string]func(h *fakeHub, on bool){
		"a pause": func(h *fakeHub, on bool) {
			h.setBundle("web", func(b *state.Bundle) {
				if b.Spec.Pause = nil; on {
					b.Spec.Pause = &v1alpha1.RolloutPause{By: "alice"}
				}
			})
		},
		"a freeze": func(h *fakeHub, on bool) {
			h.mu.Lock()
			if h.freeze = nil; on {
				h.freeze = &v1alpha1.ChangeFreeze{By: "alice", Reason: "incident"}
			}
			h.mu.Unlock()
			h.settings("hub")
		},
	} {
		t.Run(name, func(t *testing.T) {
			runChecker(t, func(t *testing.T, h *fakeHub, c *Checker) {
				r := newRollout("prometheus")
				waiting := verdictsOf(r, v1alpha1.GateWaiting, time.Now())
				h.setBundle("web", func(b *state.Bundle) {
					b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: waiting}
				})
				passTime(130 * time.Second)
				if n := c.TallyOf("web", &waiting[0]).Successes; n < 2 {
					t.Fatalf("%d successes before the halt", n)
				}
				halt(h, true) // shorter than an interval
				halt(h, false)
				if !c.TallyOf("web", &waiting[0]).At.IsZero() {
					t.Error("a measurement of before the halt counts after it")
				}
				h.takeMeasured()
				halt(h, true)
				passTime(time.Hour)
				if got := h.takeMeasured(); got != "" || !c.TallyOf("web", &waiting[0]).At.IsZero() {
					t.Errorf("in the halt: %s", got)
				}
				halt(h, false)
				passTime(70 * time.Second)
				if n := c.TallyOf("web", &waiting[0]).Successes; n < 1 || n > 2 {
					t.Errorf("%d successes after the halt", n)
				}
			})
		})
	}
}

// Requests to one host, and those of one namespace, have a part of the workers: others go on.
func TestASlowHostKeepsItsPartOfTheWorkers(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, c *Checker) {
		slow := make(chan struct{})
		h.editFields(func() {
			h.outcome = func(id gateID) rollout.Outcome {
				if id.name == "slow" {
					<-slow
				}
				return rollout.Outcome{Kind: rollout.OutcomeSuccess, Text: "0.1"}
			}
		})
		r := newRollout("slow", "quick")
		for i := range 40 {
			h.setBundle(fmt.Sprint("web", i), func(b *state.Bundle) {
				b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: verdictsOf(r, v1alpha1.GateWaiting, time.Now())}
			})
		}
		passTime(30 * time.Second)
		busy := 0
		h.mu.Lock()
		quick := map[string]bool{}
		for _, m := range h.measured {
			if strings.HasSuffix(m, "/slow") {
				busy++
			} else {
				quick[m] = true
			}
		}
		h.mu.Unlock()
		if busy != hostChecks || len(quick) != 40 {
			t.Errorf("%d requests to the slow host are under way, and %d quick gates were measured", busy, len(quick))
		}
		close(slow)
		synctest.Wait()
	})
}

// A hub that does not lead measures nothing, and one that begins to lead measures what waits.
func TestOnlyALeaderMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHub{bundles: map[string]state.Bundle{}}
		c := New(Config{Bundles: h, Revisions: fakeRevisions{h}, Settings: fakeSettings{h}, Secrets: secretStore{}, Events: h, Changed: func(string) {}})
		c.measure = func(_ context.Context, _ state.Bundle, id gateID, _ *v1alpha1.RolloutGate) rollout.Outcome {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.measured = append(h.measured, id.uid+"/"+id.name)
			return rollout.Outcome{Kind: rollout.OutcomeSuccess, Text: "0.1"}
		}
		r := newRollout("prometheus")
		h.setBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: verdictsOf(r, v1alpha1.GateWaiting, time.Now())}
		})
		passTime(time.Hour)
		if got := h.takeMeasured(); got != "" {
			t.Errorf("a hub that does not lead measures %s", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = c.Run(ctx) })
		passTime(30 * time.Second)
		if got := h.takeMeasured(); got != "web/prometheus 1" {
			t.Errorf("a hub that leads measures %q", got)
		}
		stop()
		run.Wait()
	})
}

// A namespace with as many gates as it may have leaves room for others. The value of its gate that waits says so.
func TestANamespaceLeavesRoomForOthers(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, c *Checker) {
		r := newRollout("prometheus")
		waiting := verdictsOf(r, v1alpha1.GateWaiting, time.Now())
		wait := func(b *state.Bundle) {
			b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: waiting}
		}
		for i := range namespaceGates {
			h.setBundle(fmt.Sprint("many", i), wait)
		}
		h.editFields(func() { h.changed = nil })
		h.setBundle("web", wait)
		if tally := c.TallyOf("web", &waiting[0]); tally.Value != postponedText || !tally.At.IsZero() || !slices.Equal(h.readChanged(), []string{"web"}) {
			t.Errorf("the gate beyond the bound has %+v, and %q are decided again", tally, h.readChanged())
		}
		h.setBundle("other", func(b *state.Bundle) { wait(b); b.Ref.Namespace = "other" })
		passTime(20 * time.Second)
		if got := h.takeMeasured(); !strings.Contains(got, "other/prometheus") || strings.Contains(got, "web/") {
			t.Errorf("measured are %s", got)
		}
		h.setBundle("many7", func(b *state.Bundle) { b.Status.Rollout = nil })
		passTime(10 * time.Minute)
		if got := h.takeMeasured(); !strings.Contains(got, "web/prometheus") {
			t.Errorf("with room: %s", got)
		}
	})
}

// Gates beyond the bound wait, and are measured once there is room.
func TestGatesBeyondTheBoundWait(t *testing.T) {
	runChecker(t, func(t *testing.T, h *fakeHub, c *Checker) {
		r := newRollout("prometheus")
		waiting := verdictsOf(r, v1alpha1.GateWaiting, time.Now())
		c.mu.Lock()
		for i := range maxGates {
			c.tracked[gateID{uid: fmt.Sprint("filler", i)}] = &trackedGate{gate: r.Stages[0].GatesAfter[0]}
		}
		filler := gateID{uid: "filler0"}
		c.byBundle["filler0"] = map[gateID]bool{filler: true}
		c.mu.Unlock()
		h.setBundle("web", func(b *state.Bundle) {
			b.Spec.Rollout, b.Status.Rollout = r, &v1alpha1.RolloutStatus{Gates: waiting}
		})
		passTime(time.Minute)
		if got := h.takeMeasured(); got != "" {
			t.Errorf("beyond the bound: %s", got)
		}
		h.notify("filler0")
		passTime(30 * time.Second)
		if got := h.takeMeasured(); got != "web/prometheus 1" {
			t.Errorf("with room: %q", got)
		}
	})
}
