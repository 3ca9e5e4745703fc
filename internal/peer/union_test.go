package peer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func outcomeState(out outcome) (s []string) {
	for _, c := range out.changes {
		s = append(s, fmt.Sprintf("%s here=%t elsewhere=%t", c.uid, c.here, c.elsewhere))
	}
	for _, o := range out.superseded {
		s = append(s, "superseded "+o.uid+" by "+o.hub)
	}
	slices.Sort(s)
	return s
}

func expectOutcome(t *testing.T, what string, out outcome, want ...string) {
	t.Helper()
	if got := outcomeState(out); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestAnAgentThatGoesOnToAnotherHub(t *testing.T) {
	a, b := newUnion("a"), newUnion("b")
	a.beginHubList("b")
	b.beginHubList("a")
	// b's clock is an hour behind a's.
	expectOutcome(t, "up at a", a.addOwnSession("u", 3_600_000_000), "u here=true elsewhere=false")
	expectOutcome(t, "a tells b", b.addRemoteSession("a", "u", a.own["u"].at), "u here=false elsewhere=true")
	expectOutcome(t, "up at b", b.addOwnSession("u", 0), "u here=true elsewhere=true")
	if !b.own["u"].isNewerThan(a.own["u"]) {
		t.Fatal("the session that began knowing of the other one is not the newer one")
	}
	expectOutcome(t, "b tells a", a.addRemoteSession("b", "u", b.own["u"].at), "superseded u by b", "u here=true elsewhere=true")
	expectOutcome(t, "a ends its own", a.endOwnSession("u"), "u here=false elsewhere=true")
	expectOutcome(t, "a tells b", b.endRemoteSession("a", "u"), "u here=true elsewhere=false")
	expectOutcome(t, "sent twice", b.endRemoteSession("a", "u"))
}

func TestWhatABrokenCallToldCountsUntilItIsToldAnew(t *testing.T) {
	u := newUnion("me")
	u.beginHubList("b")
	u.addRemoteSession("b", "x", 1)
	u.addRemoteSession("b", "y", 2)
	expectOutcome(t, "complete", u.completeHubList("b"))
	if !u.isHubListComplete("b") {
		t.Error("b has sent all, and does not count so")
	}
	u.markHubListIncomplete("b")
	if u.isHubListComplete("b") {
		t.Error("b may hold others by now, and counts as if it had sent all")
	}
	u.beginHubList("b")
	expectOutcome(t, "y again", u.addRemoteSession("b", "y", 2))
	expectOutcome(t, "complete", u.completeHubList("b"), "x here=false elsewhere=false")
	expectOutcome(t, "b is lost", u.removeHub("b"), "y here=false elsewhere=false")
	expectOutcome(t, "a late word of b", u.addRemoteSession("b", "y", 3))
}

func TestTwoHubsAndOneThatIsLost(t *testing.T) {
	u := newUnion("me")
	for _, hub := range []string{"b", "c"} {
		u.beginHubList(hub)
	}
	expectOutcome(t, "b", u.addRemoteSession("b", "x", 1), "x here=false elsewhere=true")
	expectOutcome(t, "c", u.addRemoteSession("c", "x", 2))
	expectOutcome(t, "c is lost", u.removeHub("c"))
	expectOutcome(t, "b too", u.removeHub("b"), "x here=false elsewhere=false")
}

// After any order of steps and messages between hubs, once all have sent all, one hub holds each
// cluster, and all agree.
func TestHubsAgree(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		hubs := map[string]*sessionUnion{"a": newUnion("a"), "b": newUnion("b"), "c": newUnion("c")}
		names := slices.Sorted(maps.Keys(hubs))
		skew := map[string]int64{}
		type word struct {
			from, to, uid string
		}
		var words []word
		tell := func(from, uid string) {
			for _, to := range names {
				if to != from {
					words = append(words, word{from, to, uid})
				}
			}
		}
		for _, n := range names {
			skew[n] = r.Int64N(1000)
			for _, o := range names {
				if o != n {
					hubs[n].beginHubList(o)
				}
			}
		}
		deliver := func(i int) {
			w := words[i]
			words = slices.Delete(words, i, i+1)
			to := hubs[w.to]
			if s, ok := hubs[w.from].own[w.uid]; ok {
				for _, s := range to.addRemoteSession(w.from, w.uid, s.at).superseded {
					to.endOwnSession(s.uid)
					tell(w.to, s.uid)
				}
			} else {
				to.endRemoteSession(w.from, w.uid)
			}
		}
		for now := range int64(100) {
			uid, hub := fmt.Sprint("u", r.IntN(4)), names[r.IntN(3)]
			hubs[hub].addOwnSession(uid, now+skew[hub])
			tell(hub, uid)
			for range r.IntN(5) {
				if len(words) > 0 {
					deliver(r.IntN(len(words)))
				}
			}
		}
		for len(words) > 0 {
			deliver(0)
		}
		for uid := range 4 {
			uid := fmt.Sprint("u", uid)
			var holders []string
			for _, n := range names {
				if _, ok := hubs[n].own[uid]; ok {
					holders = append(holders, n)
				}
			}
			if len(holders) != 1 {
				t.Fatalf("seed %d: %s is held by %v", seed, uid, holders)
			}
			for _, n := range names {
				if s := hubs[n].newHolderChange(uid); s.here != (n == holders[0]) || s.elsewhere == s.here {
					t.Fatalf("seed %d: %s is held by %v, and %s says here=%t elsewhere=%t", seed, uid, holders, n, s.here, s.elsewhere)
				}
			}
		}
	}
}
