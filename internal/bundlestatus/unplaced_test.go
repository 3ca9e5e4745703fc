package bundlestatus

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/state"
)

// A Bundle that fits nowhere has an Event, once that has lasted, and again when it returns;
// another hub that begins does not repeat it.
func TestWhatHasNoPlaceIsAnEvent(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	countEvents := func() (n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.said {
			if strings.HasPrefix(s, "web NoClusterFits: no cluster fits the placement") {
				n++
			}
		}
		return n
	}
	unfit := atoll.RowReason{Reason: atoll.ReasonNoClusterFits}.String()
	set := func(reason string) {
		m.setRow("b", "a", func(r *state.Row) { r.Spec.Reason = reason })
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply()
		for _, x := range []struct {
			do   func()
			wait time.Duration
			want int
			when string
		}{
			{func() {}, 10 * time.Second, 0, "it may be over at once"},
			{func() {}, 10 * time.Second, 1, "it has lasted"},
			{func() {}, time.Hour, 1, "it lasts on"},
			{func() { m.setRow("b", "a", func(r *state.Row) { r.Spec.Revision = "b-r1" }); m.reportAvailable("a", 2) }, time.Minute, 1, "it is placed"},
			{func() { set(unfit) }, 5 * time.Second, 1, "for a moment"},
			{func() { set("") }, time.Minute, 1, "it fits again"},
			{func() { set(unfit) }, time.Minute, 2, "it does not fit any more"},
		} {
			x.do()
			if step(x.wait); countEvents() != x.want {
				t.Fatalf("%s: %d Events, want %d: %q; %+v", x.when, countEvents(), x.want, m.said, m.getBundle().Status.Conditions)
			}
		}
		// Another hub takes over.
		ctx, stop := context.WithCancel(context.Background())
		next, done := New(m.newConfig()), make(chan error)
		go func() { done <- next.Run(ctx) }()
		if step(time.Hour); countEvents() != 2 {
			t.Errorf("another hub tells it again: %q", m.said)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A lack of places for many is reported at a limited rate, and not for Bundles with a place in
// between.
func TestManyWithoutAPlaceAreToldOfAtAPace(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	countEvents := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.said)
	}
	name := func(i int) string { return fmt.Sprint("b", i) }
	run(t, m, func(step func(time.Duration)) {
		for i := range 100 {
			m.setBundle(name(i), nil)
			m.cutRevision(name(i), &atoll.Content{})
		}
		step(placing + unplacedAfter + time.Second)
		if n, burst := countEvents(), pace.UnplacedEvents.Burst; n < burst || n > burst+2*int(pace.UnplacedEvents.TokensPerSecond()) {
			t.Errorf("%d Events at once", n)
		}
		for i := range 100 {
			m.setRow(name(i), "a", func(r *state.Row) { r.Spec.Revision = name(i) + "-r1" })
		}
		n := countEvents()
		if step(time.Hour); countEvents() > n+int(pace.UnplacedEvents.TokensPerSecond()) {
			t.Errorf("%d Events after they have a place", countEvents()-n)
		}
	})
}
