package link

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/agent/inventory"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// removing is a member that has removed its bundles, and that something befalls while a
// report is being numbered.
type removing struct {
	member
	meanwhile func()
}

func (r *removing) NextSequence(ctx context.Context) (int64, error) {
	if happens := r.meanwhile; happens != nil {
		r.meanwhile = nil
		happens()
	}
	return r.member.NextSequence(ctx)
}

func (r *removing) StatusOf(bundle string, prev *atoll.RowStatus, now time.Time) (atoll.RowStatus, bool) {
	s, held := r.member.StatusOf(bundle, prev, now)
	if r.held[bundle].Remove {
		s.State = atoll.RowRemoved
	}
	return s, held
}

// linkTo a member that holds web, of that generation, which is to go.
func linkTo(t *testing.T, generation int64) (*HubLink, *removing) {
	m := &removing{member: member{ready: map[string]bool{}, held: map[string]atoll.Manifest{}}}
	l := New(Options{
		Name: "shop", Store: m, Inventory: func() inventory.Snapshot { return inventory.Snapshot{} },
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}, store.StoredContents{})
	m.changed, l.applier, l.holdings = l.BundleStatusChanged, m, m
	l.newSessionCore()
	l.out = newOutbox(unlimited.Unsent, func(error) {})
	l.applyOutput(l.core.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{}}}), l.out)
	m.orderManifest(t, l, atoll.Manifest{Bundle: "web", Generation: generation, Remove: true})
	return l, m
}

// orderManifest comes and is stored.
func (r *removing) orderManifest(t *testing.T, l *HubLink, m atoll.Manifest) {
	t.Helper()
	m.Content = atoll.HashJSON([]any{m.Bundle, m.Generation})
	body, err := session.NewPayload(m).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.applyOutput(l.core.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: &pb.Upsert{Bundle: m.Bundle, Generation: m.Generation, Manifest: body}}}), l.out)
	if n := len(l.pending.list); n != 1 {
		t.Fatalf("%d manifests are to be stored", n)
	}
	l.pending.Clear()
	r.held[m.Bundle] = m
	l.applyOutput(l.core.ManifestStored(m.Bundle, m.Generation, m.Content), l.out)
}

// hubStored reports that the hub has stored the last report of web, which is forgotten by that.
func hubStored(t *testing.T, l *HubLink) {
	result := l.core.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: "web", Seq: l.core.LastSeq("web")}}})
	if _, forgets := result.Forget["web"]; !forgets {
		t.Fatal("the bundle is not forgotten")
	}
	if err := l.applyBlockingOutput(t.Context(), result, &sessionState{}); err != nil {
		t.Fatal(err)
	}
}

// reportedStates returns the states that were sent since it was asked last.
func reportedStates(t *testing.T, l *HubLink) (states []string) {
	t.Helper()
	frames, _ := l.out.takeFrames()
	for _, f := range frames {
		if r := f.GetReport(); r != nil {
			var s atoll.RowStatus
			if err := json.Unmarshal(r.GetStatus(), &s); err != nil {
				t.Fatal(err)
			}
			states = append(states, string(s.State))
		}
	}
	return states
}

// A report under way while its bundle is forgotten must not restore the last reported status: no
// later call would forget it, and it would be stored forever.
func TestAReportDoesNotBringBackWhatIsForgotten(t *testing.T) {
	l, m := linkTo(t, 3)
	report := func() {
		t.Helper()
		if err := l.reportBundle(t.Context(), "web", time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	report()
	if got := reportedStates(t, l); !slices.Equal(got, []string{string(atoll.RowRemoved)}) {
		t.Fatalf("reported %v", got)
	}
	l.reportedBundles = map[string]bool{} // as if an earlier process had reported it: it is reported again
	m.meanwhile = func() { hubStored(t, l) }
	report()
	report() // the member holds it until it is dropped there
	if got := reportedStates(t, l); len(got) > 0 || len(l.memory.Last) > 0 || len(l.reportedBundles) > 0 || l.core.CountUnacknowledged() > 0 {
		t.Errorf("reported %v; remembered %v, sent %v", got, slices.Collect(maps.Keys(l.memory.Last)), l.reportedBundles)
	}
	if l.memory.Gone["web"].Generation != 3 {
		t.Errorf("gone is %v", l.memory.Gone)
	}

	// An object that returns is reported.
	m.orderManifest(t, l, atoll.Manifest{Bundle: "web", Generation: 4})
	report()
	if got := reportedStates(t, l); !slices.Equal(got, []string{string(atoll.RowProgressing)}) || l.memory.Last["web"].Generation != 4 {
		t.Errorf("reported %v; remembered %v", got, l.memory.Last)
	}
}

// A Bundle that becomes Ready is reported at once, each other change after Gather.
func TestReadyIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := linkTo(t, 3)
		m.orderManifest(t, l, atoll.Manifest{Bundle: "shop", Generation: 1})
		go l.reportLoop(t.Context())
		// reported returns the states that are sent within the next moment, and after Gather.
		reported := func() (atOnce, later []string) {
			synctest.Wait()
			atOnce = reportedStates(t, l)
			time.Sleep(Gather)
			synctest.Wait()
			return atOnce, reportedStates(t, l)
		}
		change := func(isReady bool) {
			m.mu.Lock()
			m.ready["shop"] = isReady
			m.mu.Unlock()
			l.BundleStatusChanged("shop")
		}
		change(false)
		if atOnce, later := reported(); len(atOnce) > 0 || !slices.Equal(later, []string{string(atoll.RowProgressing)}) {
			t.Fatalf("a new Bundle is reported as %v at once and %v later", atOnce, later)
		}
		for _, step := range []struct {
			isReady       bool
			atOnce, later []string
		}{
			{true, []string{string(atoll.RowReady)}, nil},
			{false, nil, []string{string(atoll.RowProgressing)}},
			{true, []string{string(atoll.RowReady)}, nil},
		} {
			change(step.isReady)
			if atOnce, later := reported(); !slices.Equal(atOnce, step.atOnce) || !slices.Equal(later, step.later) {
				t.Errorf("ready %t: reported %v at once and %v later; want %v and %v", step.isReady, atOnce, later, step.atOnce, step.later)
			}
		}

		// A Bundle that flaps within Gather is reported as it is at its end.
		change(false)
		change(true)
		if atOnce, later := reported(); len(atOnce)+len(later) > 0 {
			t.Errorf("a Bundle that is as it was is reported as %v and %v", atOnce, later)
		}
	})
}
