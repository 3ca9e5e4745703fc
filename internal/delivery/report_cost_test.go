package delivery

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

// flappingStreams streams whose rows turn with every report.
type flappingStreams struct {
	*testHub
	streams []*agentSession
	frames  [2][]byte
	seq     int64
}

func newFlappingStreams(t testing.TB, clusters int, adjust ...func(*Options)) *flappingStreams {
	t.Helper()
	adjust = append(adjust, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
	f := &flappingStreams{testHub: newTestHub(t, adjust...), seq: 1}
	specs := map[string]atoll.RowSpec{}
	for i := range clusters {
		uid, name := fmt.Sprintf("u%d", i), fmt.Sprintf("c%d", i)
		specs[name] = activeSpec(uid, "r1", 1)
		f.streams = append(f.streams, &agentSession{gateway: f.Gateway, id: identity{uid: uid}, cluster: name, senderRunning: true})
	}
	f.rows.setRows("b", specs)
	for i, state := range []atoll.RowState{atoll.RowReady, atoll.RowDegraded} {
		raw, err := json.Marshal(atoll.RowStatus{Generation: 1, Content: "r1", State: state, Applied: true, Total: 3, Ready: int32(3 - i)})
		if err != nil {
			t.Fatal(err)
		}
		f.frames[i] = raw
	}
	return f
}

// reportChange the row of one cluster.
func (f *flappingStreams) reportChange(i int) {
	f.seq++
	s := f.streams[i%len(f.streams)]
	s.handleReport(&pb.Report{Bundle: "b", Seq: f.seq, Status: f.frames[(i/len(f.streams))%2]})
}

// BenchmarkReport measures what one report costs until it waits for its write.
func BenchmarkReport(b *testing.B) {
	f := newFlappingStreams(b, 1000, func(o *Options) { o.FlushAfter = time.Hour })
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		f.reportChange(i)
		i++
	}
}

// TestStatusStormIsBounded: however often rows flap, what waits is one report per row
// and one timer per Bundle.
func TestStatusStormIsBounded(t *testing.T) {
	const clusters, rounds = 2000, 5
	f := newFlappingStreams(t, clusters, func(o *Options) { o.FlushAfter = time.Hour })
	before := runtime.NumGoroutine()
	for i := range clusters * rounds {
		f.reportChange(i)
	}
	if n := runtime.NumGoroutine() - before; n > 2+maxWriters {
		t.Errorf("%d goroutines wait for writes", n)
	}
	f.reportWriter.mu.Lock()
	defer f.reportWriter.mu.Unlock()
	if n := len(f.reportWriter.bundles); n != 1 {
		t.Errorf("%d Bundles are pending, each with a timer", n)
	}
	if n := len(f.reportWriter.bundles["b"].rows); n > clusters {
		t.Errorf("%d reports wait of %d rows", n, clusters)
	}
}

// TestStatusStormIsWrittenBySlices: what rows say while a write is waited for is written
// once for each slice of 200.
func TestStatusStormIsWrittenBySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clusters, rounds = 2000, 5
		d := newReportDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range clusters {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.setRows("b", specs)
		for i := range clusters * rounds {
			d.reportRow(fmt.Sprint(i%clusters), statusAt(1, []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i/clusters%2], 1))
		}
		passTime(450 * time.Millisecond)
		if n := d.rows.countWrites(); n != clusters/200 {
			t.Errorf("%d writes of %d slices", n, clusters/200)
		}
	})
}
