package quarantine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestCostOfOneRendering(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		work RenderWork
		want time.Duration
	}{
		"within the free time":    {RenderWork{CPUTime: 250 * ms}, 0},
		"above the free time":     {RenderWork{CPUTime: 400 * ms}, 150 * ms},
		"a panic":                 {RenderWork{HasPanicked: true}, 500 * ms},
		"a panic after a while":   {RenderWork{CPUTime: 900 * ms, HasPanicked: true}, 650 * ms},
		"the process was stopped": {RenderWork{CPUTime: time.Hour}, 10 * time.Second},
	} {
		if got := c.work.Cost(); got != c.want {
			t.Errorf("%s: costs %s, want %s", name, got, c.want)
		}
	}
}

// second is a work that costs a second: 250 ms are free.
var second = RenderWork{CPUTime: 1250 * time.Millisecond}

// chargeUntilBegun charges works of one second at the same time until a quarantine begins. It
// returns the number of works.
func chargeUntilBegun(t *testing.T, l *RenderCostLedger, now time.Time, revision string) (Quarantine, int) {
	t.Helper()
	for n := 1; n <= 1000; n++ {
		if q, begins := l.Charge(now, "b", revision, second); begins {
			return q, n
		}
	}
	t.Fatal("no quarantine begins")
	return Quarantine{}, 0
}

// A minute of work at once is the budget. Each quarantine is twice as long as the last one, and its
// trial is five seconds of work.
func TestQuarantinesGrow(t *testing.T) {
	l, now := NewRenderCostLedger(), start
	for i, want := range []struct {
		works   int
		minutes time.Duration
	}{{60, 1}, {5, 2}, {5, 4}, {5, 8}, {5, 16}, {5, 30}, {5, 30}} {
		q, works := chargeUntilBegun(t, &l, now, "r1")
		if works != want.works || q.Until.Sub(now) != want.minutes*time.Minute || !q.Since.Equal(start) || q.Revision != "r1" {
			t.Errorf("quarantine %d begins after %d works for %s, since %s; want %d works and %d minutes", i, works, q.Until.Sub(now), q.Since, want.works, want.minutes)
		}
		if i == 0 && q.Cost != time.Minute {
			t.Errorf("the cost is %s", q.Cost)
		}
		now = q.Until
	}
}

// Renderings of a second, one in ten seconds, are within the budget forever.
func TestATenthOfACoreIsFree(t *testing.T) {
	l := NewRenderCostLedger()
	for i := range 1000 {
		if _, begins := l.Charge(start.Add(time.Duration(i)*10*time.Second), "b", "r1", second); begins {
			t.Fatalf("work %d begins a quarantine", i)
		}
	}
}

// Many fast renderings are no reason, and open no account.
func TestALargeFleetIsNoReason(t *testing.T) {
	l := NewRenderCostLedger()
	for range 100_000 {
		if _, begins := l.Charge(start, "b", "r1", RenderWork{CPUTime: 200 * time.Millisecond}); begins {
			t.Fatal("a quarantine begins")
		}
	}
	if len(l.accounts) != 0 {
		t.Errorf("%d accounts", len(l.accounts))
	}
}

func TestAnotherRevisionIsAnotherContent(t *testing.T) {
	l := NewRenderCostLedger()
	q, _ := chargeUntilBegun(t, &l, start, "r1")
	if _, found := l.Find(start, "b", "r2"); found {
		t.Error("another Revision is set aside")
	}
	if _, found := l.Find(start, "other", "r1"); found {
		t.Error("another Bundle is set aside")
	}
	if _, begins := l.Charge(start, "b", "r2", RenderWork{CPUTime: 250 * time.Millisecond}); begins {
		t.Error("a Revision without cost is set aside")
	}
	// The budget is the Bundle's: new contents do not refill it.
	if next, works := chargeUntilBegun(t, &l, start.Add(time.Second), "r2"); works != 1 || next.Until.Sub(start.Add(time.Second)) != 2*time.Minute {
		t.Errorf("the second Revision is set aside after %d works for %s", works, next.Until.Sub(start))
	}
	if is, found := l.Find(start, "b", "r1"); !found || is != q {
		t.Error("the first Revision is not set aside any more")
	}
	if n := l.CountSetAside(start); n != 1 {
		t.Errorf("%d Bundles are set aside", n)
	}
}

// A work that began before the quarantine does not make it longer.
func TestWorkDuringAQuarantineDoesNotProlongIt(t *testing.T) {
	l := NewRenderCostLedger()
	q, _ := chargeUntilBegun(t, &l, start, "r1")
	if _, begins := l.Charge(start.Add(time.Second), "b", "r1", RenderWork{HasPanicked: true}); begins {
		t.Error("a second quarantine begins")
	}
	if is, _ := l.Find(start, "b", "r1"); is != q {
		t.Errorf("the quarantine ends at %s, was %s", is.Until, q.Until)
	}
}

func TestAQuarantineIsShownForItsProbation(t *testing.T) {
	l := NewRenderCostLedger()
	q, _ := chargeUntilBegun(t, &l, start, "r1")
	if q.IsOver(start.Add(time.Minute-1)) || !q.IsOver(start.Add(time.Minute)) {
		t.Error("the quarantine does not end after a minute")
	}
	if _, found := l.Find(start.Add(2*time.Minute-1), "b", "r1"); !found {
		t.Error("the quarantine is not shown during its probation")
	}
	if _, found := l.Find(start.Add(2*time.Minute), "b", "r1"); found {
		t.Error("the quarantine is shown after its probation")
	}
	if n := l.CountSetAside(start.Add(time.Minute)); n != 0 {
		t.Errorf("%d Bundles are set aside during the probation", n)
	}
}

// Half an hour after its last quarantine a Bundle has its whole budget again.
func TestAnOldQuarantineIsForgotten(t *testing.T) {
	l := NewRenderCostLedger()
	q, _ := chargeUntilBegun(t, &l, start, "r1")
	now := q.Until.Add(30 * time.Minute)
	if next, works := chargeUntilBegun(t, &l, now, "r1"); works != 60 || next.Until.Sub(now) != time.Minute || !next.Since.Equal(now) {
		t.Errorf("set aside after %d works for %s since %s", works, next.Until.Sub(now), next.Since)
	}
}

// After its quarantine a Revision that costs a tenth of a core gets on: its trial refills. A
// Revision that costs 11 % of a core is set aside again when the 5 seconds of the trial are spent.
func TestTheTrialRefills(t *testing.T) {
	l := NewRenderCostLedger()
	q, _ := chargeUntilBegun(t, &l, start, "r1")
	for i := range 1000 {
		if _, begins := l.Charge(q.Until.Add(time.Duration(i)*10*time.Second), "b", "r1", second); begins {
			t.Fatalf("work %d of a tenth of a core begins a quarantine", i)
		}
	}
	q, _ = chargeUntilBegun(t, &l, q.Until.Add(4*time.Hour), "r1")
	for i := range 1000 { // each takes 100 ms more than comes
		at := q.Until.Add(time.Duration(i) * 10 * time.Second)
		if _, begins := l.Charge(at, "b", "r1", RenderWork{CPUTime: 1350 * time.Millisecond}); begins {
			if i != 39 { // 5 s less 39 times 100 ms are 1.1 s, which the next work spends
				t.Errorf("work %d begins the quarantine", i)
			}
			return
		}
	}
	t.Error("no quarantine begins")
}

// Since is the begin of a series of quarantines, each of which begins while the last one is shown. A
// later quarantine of the same Revision begins another series.
func TestSinceIsTheBeginOfTheSeries(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // from the end of the first quarantine
		isNew bool
	}{
		"while the first one is shown": {time.Minute - 1, false},
		"when it is shown no more":     {time.Minute, true},
		"while it still counts":        {29 * time.Minute, true},
	} {
		l := NewRenderCostLedger()
		first, _ := chargeUntilBegun(t, &l, start, "r1")
		now, want := first.Until.Add(c.after), start
		if c.isNew {
			want = now
		}
		if q, _ := chargeUntilBegun(t, &l, now, "r1"); !q.Since.Equal(want) || q.Until.Sub(now) != 2*time.Minute {
			t.Errorf("%s: since %s, want %s; it lasts %s", name, q.Since, want, q.Until.Sub(now))
		}
	}
}

func TestAccountsAreBounded(t *testing.T) {
	l := NewRenderCostLedger()
	for i := range 10 * minSweep {
		l.Charge(start.Add(time.Duration(i)*time.Second), fmt.Sprint(i), "r1", second)
	}
	if n := len(l.accounts); n > minSweep+1 {
		t.Errorf("%d accounts are kept", n)
	}
	for i := range 3 * maxRevisions {
		chargeUntilBegun(t, &l, start, fmt.Sprint(i))
	}
	if n := len(l.accounts["b"].setAside); n != maxRevisions {
		t.Errorf("%d Revisions of one Bundle are kept", n)
	}
	if _, found := l.Find(start, "b", fmt.Sprint(3*maxRevisions-1)); !found {
		t.Error("the last Revision is not set aside")
	}
}

func TestAccountsUseTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, bundle, begun := NewAccounts(), enginev1.BundleRef{UID: "b", Name: "shop"}, 0
		a.Subscribe(func(is enginev1.BundleRef, q Quarantine) {
			if begun++; is != bundle || q.Revision != "r1" {
				t.Errorf("%+v of %+v", q, is)
			}
		})
		for range 120 {
			if err := a.CheckRender("b", "r1"); err != nil {
				t.Fatalf("refused before the budget is spent: %v", err)
			}
			a.ChargeRender(bundle, "r1", RenderWork{HasPanicked: true})
		}
		var aside *Error
		if err := a.CheckRender("b", "r1"); !errors.As(err, &aside) || !aside.Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("after 120 panics: %v", err)
		}
		if begun != 1 || a.CountSetAside() != 1 {
			t.Errorf("%d quarantines began, %d Bundles are set aside", begun, a.CountSetAside())
		}
		time.Sleep(time.Minute)
		if err := a.CheckRender("b", "r1"); err != nil {
			t.Errorf("after a minute: %v", err)
		}
		if q, shown := a.FindQuarantine("b", "r1"); !shown || q.Cost != time.Minute {
			t.Errorf("shown %t, %+v", shown, q)
		}
	})
}
