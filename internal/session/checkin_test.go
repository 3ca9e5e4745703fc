package session

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

var noon = time.Unix(1_800_000_000, 0)

func TestCheckInsAreSpread(t *testing.T) {
	const agents, slots = 10_000, 100
	interval := 15 * time.Minute
	for _, round := range []time.Duration{0, interval, 20 * interval} {
		hits := make([]int, slots)
		for i := range agents {
			c := NewCheckInSchedule(interval, fmt.Sprintf("3a5b-%d", i))
			at := c.NextCheckIn(noon.Add(round))
			if wait := at.Sub(noon.Add(round)); wait < interval/10 || wait > interval*12/10 {
				t.Fatalf("the next check-in is in %s", wait)
			}
			hits[int(at.UnixNano()%int64(interval)/(int64(interval)/slots))]++
		}
		if most := slices.Max(hits); most > 2*agents/slots {
			t.Errorf("%d of %d agents check in within a hundredth of the interval", most, agents)
		}
	}
}

func TestCheckInsKeepTheirRhythm(t *testing.T) {
	for _, interval := range []time.Duration{10 * time.Second, 15 * time.Minute, 24 * time.Hour} {
		for i := range 50 {
			c := NewCheckInSchedule(interval, fmt.Sprint(i))
			first := c.NextCheckIn(noon)
			last := first
			for range 100 {
				next := c.NextCheckIn(last.Add(interval / 6)) // a long session
				if d := next.Sub(last); d < interval*9/10 || d > interval*11/10 {
					t.Fatalf("%s between two check-ins every %s", d, interval)
				}
				last = next
			}
			if d := last.Sub(first) - 100*interval; d.Abs() > interval/10 {
				t.Errorf("after 100 check-ins %s off", d)
			}
		}
	}
}

func TestSessionsOfCheckInsEnd(t *testing.T) {
	c := NewCheckInSchedule(15*time.Minute, "u")
	for name, x := range map[string]struct {
		e     SessionProgress
		over  bool
		again time.Duration
	}{
		"hub not done":      {SessionProgress{Active: noon.Add(-time.Minute)}, false, time.Minute},
		"hub stalls":        {SessionProgress{Active: noon.Add(-2 * time.Minute)}, true, 0},
		"all sent":          {SessionProgress{Idle: noon.Add(-2 * time.Second), Active: noon.Add(-time.Second)}, true, 0},
		"frames go":         {SessionProgress{Idle: noon.Add(-time.Hour), Active: noon.Add(-600 * time.Millisecond)}, false, 400 * time.Millisecond},
		"manifests open":    {SessionProgress{Idle: noon.Add(-90 * time.Second), Active: noon.Add(-time.Second), Work: Work{Open: 1}}, false, 119 * time.Second},
		"health to come":    {SessionProgress{Idle: noon.Add(-50 * time.Second), Active: noon.Add(-40 * time.Second), Work: Work{UnderWay: 3}}, false, 10 * time.Second},
		"health is late":    {SessionProgress{Idle: noon.Add(-time.Minute), Active: noon.Add(-40 * time.Second), Work: Work{UnderWay: 3}}, true, 0},
		"not acknowledged":  {SessionProgress{Idle: noon.Add(-10 * time.Second), Active: noon.Add(-5 * time.Second), Work: Work{Unacknowledged: 1}}, false, 50 * time.Second},
		"certificate comes": {SessionProgress{Idle: noon.Add(-10 * time.Second), Active: noon.Add(-5 * time.Second), Renewing: true}, false, 50 * time.Second},
	} {
		over, again := c.IsSessionOver(x.e, noon)
		if over != x.over || !over && again != x.again {
			t.Errorf("%s: over %t, again after %s; want %t, %s", name, over, again, x.over, x.again)
		}
	}
	if over, _ := (CheckInSchedule{}).IsSessionOver(SessionProgress{Idle: noon, Active: noon}, noon.Add(time.Hour)); over {
		t.Error("an agent that holds its stream ended it")
	}
	short := NewCheckInSchedule(10*time.Second, "u")
	if over, _ := short.IsSessionOver(SessionProgress{Idle: noon, Active: noon, Work: Work{UnderWay: 1}}, noon.Add(2*time.Second)); !over {
		t.Error("with an interval of 10 s a session waits for health for more than 2 s")
	}
}

func TestEarlyCheckIns(t *testing.T) {
	c := NewCheckInSchedule(15*time.Minute, "u")
	first := c.NextPause(CheckInPause{}, noon)
	for i := 0; first.Next.Sub(noon) < 10*time.Minute; i++ { // a cluster whose turn is far enough
		c = NewCheckInSchedule(15*time.Minute, fmt.Sprint(i))
		first = c.NextPause(CheckInPause{}, noon)
	}
	early := c.ShortenPause(first, noon.Add(30*time.Second))
	if !early.Early || early.Next != noon.Add(3*time.Minute) {
		t.Errorf("hastened to %s after the session", early.Next.Sub(noon))
	}
	if again := c.ShortenPause(early, noon.Add(time.Minute)); again != early {
		t.Errorf("hastened twice: %+v", again)
	}
	if late := c.ShortenPause(first, noon.Add(5*time.Minute)); late.Next != noon.Add(5*time.Minute+time.Second) {
		t.Errorf("hastened to %s after the session", late.Next.Sub(noon))
	}
	if close := c.ShortenPause(first, first.Next.Add(-time.Millisecond)); close != first {
		t.Errorf("hastened what is about to come: %+v", close)
	}
	second := c.NextPause(early, early.Next.Add(time.Second))
	if second.Next != first.Next {
		t.Errorf("an early check-in moved the regular one from %s to %s", first.Next, second.Next)
	}
	if again := c.ShortenPause(second, second.Ended.Add(time.Second)); again.Early {
		t.Error("two early check-ins in an interval")
	}
	if third := c.ShortenPause(c.NextPause(second, second.Next.Add(time.Second)), second.Next.Add(time.Minute)); !third.Early {
		t.Error("no early check-in after a regular one")
	}
}

// Pending work keeps the session of an agent open.
func TestPendingWorkOfAnAgent(t *testing.T) {
	a := NewAgent(AgentOptions{Version: "v", Instance: "i"}, Memory{Held: []Entry{{Bundle: "old", Generation: 3, Content: "c", Status: "s"}}})
	expect := func(when string, want Work) {
		t.Helper()
		if got := a.PendingWork(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	expect("at the start", Work{UnderWay: 1}) // what it reports of "old" is to come
	a.BeginSession()
	a.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Welcome{Welcome: &pb.Welcome{CheckInSeconds: 900}}})
	out := a.ReportStatus("old", atoll.RowStatus{Generation: 3, Content: "c", State: atoll.RowReady}, 0)
	if !out.StateChanged {
		t.Error("a first report is no turn")
	}
	expect("reported", Work{Unacknowledged: 1})
	ack := func() {
		a.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: "old", Seq: a.LastSeq("old")}}})
	}
	ack()
	expect("acknowledged", Work{})
	order := &pb.Upsert{Bundle: "old", Generation: 4, Manifest: []byte(`{"bundle":"old","content":"d"}`)}
	if out := a.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Upsert{Upsert: order}}); len(out.Store) != 1 {
		t.Fatalf("not taken over: %+v", out)
	}
	expect("ordered", Work{Open: 1})
	a.ManifestStored("old", 4, "d")
	expect("stored", Work{UnderWay: 1})
	if out := a.ReportStatus("old", atoll.RowStatus{Generation: 4, Content: "d", State: atoll.RowProgressing}, 0); out.StateChanged {
		t.Error("progress is a turn")
	}
	expect("progressing", Work{UnderWay: 1, Unacknowledged: 1})
	if out := a.ReportStatus("old", atoll.RowStatus{Generation: 4, Content: "d", State: atoll.RowReady}, 0); !out.StateChanged {
		t.Error("Ready is no turn")
	}
	ack()
	expect("ready", Work{})
	if out := a.ReportStatus("old", atoll.RowStatus{Generation: 4, Content: "d", State: atoll.RowReady, Message: "m"}, 0); out.StateChanged {
		t.Error("a text is a turn")
	}
	if out := a.HandleFrame(&pb.FromHub{Frame: &pb.FromHub_Idle{Idle: &pb.Idle{CheckInSeconds: 60}}}); out.Idle.GetCheckInSeconds() != 60 {
		t.Errorf("Idle is lost: %+v", out)
	}
}

func TestLostCheckInDoesNotResetThePause(t *testing.T) {
	const steady = 10 * time.Second
	stream, checksIn := CheckInSchedule{}, NewCheckInSchedule(15*time.Minute, "uid")
	if !stream.HasLasted(steady+1, steady) || stream.HasLasted(steady, steady) {
		t.Error("a stream that lasted for longer than steady shows that the link works, a shorter one does not")
	}
	if checksIn.HasLasted(time.Hour, steady) {
		t.Error("a check-in that was lost shows nothing, however long it lasted")
	}
}

func TestPausesBetweenTriesGrow(t *testing.T) {
	const first, most = 200 * time.Millisecond, 3 * time.Second
	for _, x := range []struct{ interval, last, want time.Duration }{
		{0, 0, first},
		{0, first, 2 * first},
		{0, 2 * time.Second, most},
		{15 * time.Minute, 0, 15 * time.Second},
		{15 * time.Minute, 15 * time.Second, 30 * time.Second},
		{15 * time.Minute, 2 * time.Minute, 3 * time.Minute},
		{6 * time.Second, 0, first}, // a sixtieth would be less
		{6 * time.Second, 2 * time.Second, most},
	} {
		if got := NewCheckInSchedule(x.interval, "uid").RetryDelay(x.last, first, most); got != x.want {
			t.Errorf("interval %s: %s after a pause of %s; want %s", x.interval, got, x.last, x.want)
		}
	}
}
