package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// flapping streams whose rows turn with every report.
type flapping struct {
	*testHub
	streams []*stream
	frames  [2][]byte
	seq     int64
}

func newFlapping(t testing.TB, clusters int, adjust ...func(*Options)) *flapping {
	t.Helper()
	adjust = append(adjust, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	f := &flapping{testHub: newTestHub(t, adjust...), seq: 1}
	specs := map[string]atoll.RowSpec{}
	for i := range clusters {
		uid, name := fmt.Sprintf("u%d", i), fmt.Sprintf("c%d", i)
		specs[name] = active(uid, "r1", 1)
		f.streams = append(f.streams, &stream{g: f.Gateway, id: identity{uid: uid}, cluster: name, sending: true})
	}
	f.rows.set("b", specs)
	for i, state := range []atoll.RowState{atoll.RowReady, atoll.RowDegraded} {
		raw, err := json.Marshal(atoll.RowStatus{Generation: 1, Content: "r1", State: state, Applied: true, Total: 3, Ready: int32(3 - i)})
		if err != nil {
			t.Fatal(err)
		}
		f.frames[i] = raw
	}
	return f
}

// turn the row of one cluster.
func (f *flapping) turn(i int) {
	f.seq++
	s := f.streams[i%len(f.streams)]
	s.report(&pb.Report{Bundle: "b", Seq: f.seq, Status: f.frames[(i/len(f.streams))%2]})
}

// BenchmarkReport tells what one report costs until it waits for its write.
func BenchmarkReport(b *testing.B) {
	f := newFlapping(b, 1000, func(o *Options) { o.FlushAfter = time.Hour })
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		f.turn(i)
		i++
	}
}

// TestStatusStormIsBounded: however often rows flap, what waits is one report per row
// and one timer per Bundle.
func TestStatusStormIsBounded(t *testing.T) {
	const clusters, rounds = 2000, 5
	f := newFlapping(t, clusters, func(o *Options) { o.FlushAfter = time.Hour })
	before := runtime.NumGoroutine()
	for i := range clusters * rounds {
		f.turn(i)
	}
	if n := runtime.NumGoroutine() - before; n > 2+writersLimit {
		t.Errorf("%d goroutines wait for writes", n)
	}
	f.reports.mu.Lock()
	defer f.reports.mu.Unlock()
	if n := len(f.reports.bundles); n != 1 {
		t.Errorf("%d Bundles are pending, each with a timer", n)
	}
	if n := len(f.reports.bundles["b"].rows); n > clusters {
		t.Errorf("%d reports wait of %d rows", n, clusters)
	}
}

// TestAStormIsWrittenBySlices: what rows say while a write is waited for is written
// once for each slice of 200.
func TestAStormIsWrittenBySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters, rounds = 2000, 5
		d := newDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range clusters {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.set("b", specs)
		for i := range clusters * rounds {
			d.say(fmt.Sprint(i%clusters), at(1, []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i/clusters%2], 1))
		}
		pass(450 * time.Millisecond)
		if n := d.rows.written(); n != clusters/200 {
			t.Errorf("%d writes of %d slices", n, clusters/200)
		}
	})
}
