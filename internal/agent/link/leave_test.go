package link

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// letting go, try by try: what is told in each, and how it ends.
type letting struct {
	*member
	tries []func(waits func(string)) error
}

func (l *letting) Leave(_ context.Context, _ bool, waits func(string)) ([]string, error) {
	try := l.tries[0]
	l.tries = l.tries[1:]
	return nil, try(waits)
}

// The hub hears what the agent waits for, once each, and when that is over; the first word of a
// session it hears in any case, since an earlier one may have told it something else.
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
				l := New(Options{Hub: "hub:1", Log: slog.New(slog.DiscardHandler)}, store.Contents{})
				l.engine, l.id = &letting{tries: tc.tries}, &identity{}
				v := &visit{out: &outbox{wake: make(chan struct{}, 1)}}
				l.depart(t.Context(), v, true)
				frames, _ := v.out.take()
				var told []string
				for _, f := range frames {
					if w := f.GetLeaving(); w != nil {
						told = append(told, w.GetWaits())
					}
				}
				if !slices.Equal(told, tc.want) || len(frames) == 0 || frames[len(frames)-1].GetLeft() == nil {
					t.Errorf("told %q, want %q, and that it has left: %v", told, tc.want, frames)
				}
			})
		})
	}
}

// A session in which the agent let go of Bundles is over: the next one begins with what is held,
// and says nothing of the others any more.
func TestAfterLeavingTheNextSessionBeginsWithWhatIsHeld(t *testing.T) {
	l := New(Options{Hub: "hub:1", Log: slog.New(slog.DiscardHandler)}, store.Contents{})
	l.engine, l.id = &member{}, &identity{}
	l.memory.Last["gone"] = atoll.RowStatus{Generation: 3}
	l.begin()
	before := l.core
	l.departed(&visit{})
	if len(l.memory.Last) != 1 || l.core != before {
		t.Fatal("a session in which nobody left was forgotten")
	}
	over := make(chan struct{})
	close(over)
	l.departed(&visit{leaving: over})
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

// Of the hub that it belonged to before, an agent keeps nothing, in memory and in the member: what
// that one removed is not told to the new one, which would take it for removals that it has
// forgotten, and where it stood neither, by which the new one would take itself for set back.
func TestAnotherHubHearsNothingOfTheFirst(t *testing.T) {
	first := store.Position{Chain: "first", Revision: 7, Order: 2}
	m := &keeping{member: &member{}}
	l := New(Options{Hub: "hub:1", Store: m, Log: slog.New(slog.DiscardHandler)}, store.Contents{Position: first, Reports: store.Reports{
		Last:       map[string]atoll.RowStatus{"b1": {Generation: 4}},
		Gone:       map[string]store.Gone{"b1": {Generation: 4, At: time.Now().Unix()}},
		Tombstones: []store.Tombstone{{Bundle: "b1"}}, Position: first,
	}})
	l.engine, l.id = m, &identity{Identity: store.Identity{Former: "first"}}
	if err := l.leaveFormer(t.Context()); err != nil {
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
