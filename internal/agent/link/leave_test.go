package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// the tries of a release: the reports of each, and its end
type letting struct {
	*member
	tries []func(waits func(string)) error
}

func (l *letting) ReleaseAll(_ context.Context, _ bool, waits func(string)) ([]string, error) {
	try := l.tries[0]
	l.tries = l.tries[1:]
	return nil, try(waits)
}

// The hub gets each blocker of the agent once, and its end. The first report of a session is
// always sent, because an earlier session may have sent another one.
func TestTheHubHearsWhatLeavingWaitsFor(t *testing.T) {
	fails := func(waits func(string)) error { return errors.New("the store fails") }
	says := func(words ...string) func(func(string)) error {
		return func(waits func(string)) error {
			for _, w := range words {
				waits(w)
			}
			return nil
		}
	}
	for _, tc := range []struct {
		name  string
		tries []func(func(string)) error
		want  []string
	}{
		{"nothing", []func(func(string)) error{says()}, nil},
		{"nothing any more, after another session", []func(func(string)) error{says("")}, []string{""}},
		{"something, once", []func(func(string)) error{says("a", "a", "", "")}, []string{"a", ""}},
		{"a store that fails, and then does not", []func(func(string)) error{fails, fails, says("")}, []string{"the store fails", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(Options{Hub: "hub:1", Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
				l.applier, l.holdings, l.id = &letting{tries: tc.tries}, &member{}, &identity{}
				v := &sessionState{out: newOutbox(unlimited.Unsent, func(error) {})}
				l.leaveFleet(t.Context(), v, true)
				frames, _ := v.out.takeFrames()
				var reported []string
				for _, f := range frames {
					if w := f.GetLeaving(); w != nil {
						reported = append(reported, w.GetWaits())
					}
				}
				if !slices.Equal(reported, tc.want) || len(frames) == 0 || frames[len(frames)-1].GetLeft() == nil {
					t.Errorf("reported %q, want %q, and that it has left: %v", reported, tc.want, frames)
				}
			})
		})
	}
}

// A session in which the agent let go of Bundles is over: the next one begins with what is held,
// and says nothing of the others any more.
func TestAfterLeavingTheNextSessionBeginsWithWhatIsHeld(t *testing.T) {
	l := New(Options{Hub: "hub:1", Log: slog.New(slog.DiscardHandler)}, store.StoredContents{})
	l.applier, l.holdings, l.id = &member{}, &member{}, &identity{}
	l.memory.Last["gone"] = atoll.RowStatus{Generation: 3}
	l.newSessionCore()
	before := l.core
	l.finishLeavingSession(&sessionState{})
	if len(l.memory.Last) != 1 || l.core != before {
		t.Fatal("a session without a release was forgotten")
	}
	over := make(chan struct{})
	close(over)
	l.finishLeavingSession(&sessionState{leaving: over})
	if len(l.memory.Last) != 0 || l.core == before {
		t.Errorf("it goes on with %v, and with the same core: %t", l.memory.Last, l.core == before)
	}
}

// keeping remembers what is stored.
type keeping struct {
	*member
	reports store.Reports
}

func (k *keeping) PutReports(_ context.Context, r store.Reports) error {
	k.reports = r
	return nil
}

// An agent keeps nothing of its former hub, in memory or in the member. Removals by the former hub
// are not reported to the new one, which would take them for forgotten removals. Its position is
// not reported either, because the new hub would take itself for restored.
func TestAnotherHubHearsNothingOfTheFirst(t *testing.T) {
	first := store.Position{Chain: "first", Revision: 7, Order: 2}
	m := &keeping{member: &member{}}
	l := New(Options{Hub: "hub:1", Store: m, Log: slog.New(slog.DiscardHandler)}, store.StoredContents{Position: first, Reports: store.Reports{
		Last:       map[string]atoll.RowStatus{"b1": {Generation: 4}},
		Gone:       map[string]store.Gone{"b1": {Generation: 4, At: time.Now().Unix()}},
		Tombstones: []store.Tombstone{{Bundle: "b1"}}, Position: first,
	}})
	l.applier, l.holdings, l.id = m, m, &identity{Identity: store.Identity{Former: "first"}}
	if err := l.releaseFormerHubObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	for where, is := range map[string]store.Reports{"it": l.memory, "the member": m.reports} {
		if len(is.Last)+len(is.Gone)+len(is.Tombstones) > 0 || is.Position.Chain != "" {
			t.Errorf("%s remembers %+v", where, is)
		}
		if is.Position.Order <= first.Order { // of what is stored, the newest counts
			t.Errorf("%s takes what the first hub said for newer: %+v", where, is.Position)
		}
	}
	if l.id.Former != "" || m.identity.Former != "" {
		t.Error("it lets go of the first hub again and again")
	}
}

// A list of objects that stay is within what the hub takes, however many there are, and says how
// many are not in it.
func TestTheListOfWhatStaysIsBounded(t *testing.T) {
	var all []string
	for i := range 3 * session.MaxLeftBehind {
		all = append(all, fmt.Sprintf("namespace %d stays: %s", i, strings.Repeat("x", 1<<16)))
	}
	for _, n := range []int{0, 1, session.MaxLeftBehind, session.MaxLeftBehind + 1, len(all)} {
		out := shortenLeftBehind(all[:n])
		if len(out) != min(n, session.MaxLeftBehind) {
			t.Fatalf("of %d, %d are listed", n, len(out))
		}
		if err := session.CheckLimits(&pb.FromAgent{Frame: &pb.FromAgent_Left{Left: &pb.Left{Behind: out}}}); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		if rest := n - session.MaxLeftBehind; rest > 0 && !strings.HasPrefix(out[len(out)-1], fmt.Sprintf("%d more: ", rest+1)) {
			t.Errorf("of %d, the last is %q", n, out[len(out)-1])
		}
	}
}
