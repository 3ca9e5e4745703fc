package link

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

func reportOf(bundle string) *pb.FromAgent {
	return &pb.FromAgent{Frame: &pb.FromAgent_Report{Report: &pb.Report{Bundle: bundle, Seq: 1, Status: []byte("{}")}}}
}

// TestTimingIsSentOnce: with the report of the order's end, and with no other.
func TestTimingIsSentOnce(t *testing.T) {
	var timings applyTimings
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	timings.beginTiming(&pb.Upsert{Bundle: "b", Generation: 2, Timing: true}, start)
	attach := func(status atoll.RowStatus, ms int) *pb.Timing {
		timings.endTimingIfApplied("b", status)
		f := reportOf("b")
		timings.addTimings([]*pb.FromAgent{f, reportOf("other"), {Frame: &pb.FromAgent_Need{}}}, at(ms))
		return f.GetReport().GetTiming()
	}
	timings.recordLatestStatusChange("b", at(100))
	if got := attach(atoll.RowStatus{Generation: 1, Applied: true}, 150); got != nil {
		t.Errorf("the report of an older order has %v", got)
	}
	if got := attach(atoll.RowStatus{Generation: 2, State: atoll.RowProgressing}, 150); got != nil {
		t.Errorf("a report before the end has %v", got)
	}
	timings.recordLatestStatusChange("b", at(300))
	if got := attach(atoll.RowStatus{Generation: 2, State: atoll.RowReady, Applied: true}, 450); got.GetApplyMs() != 300 || got.GetAgeMs() != 150 {
		t.Errorf("the report has %v", got)
	}
	if got := attach(atoll.RowStatus{Generation: 2, State: atoll.RowReady, Applied: true}, 500); got != nil || len(timings) != 0 {
		t.Errorf("a second report has %v", got)
	}
}

// TestTimingWaitsForTheSession: a status that changes while the agent is disconnected keeps its time.
func TestTimingWaitsForTheSession(t *testing.T) {
	var timings applyTimings
	start := time.Now()
	timings.beginTiming(&pb.Upsert{Bundle: "b", Generation: 2, Timing: true}, start)
	timings.endTimingIfApplied("b", atoll.RowStatus{Generation: 2, State: atoll.RowFailed})
	timings.recordLatestStatusChange("b", start.Add(time.Minute)) // of the objects, after the end
	f := reportOf("b")
	timings.addTimings([]*pb.FromAgent{f}, start.Add(time.Hour))
	if got := f.GetReport().GetTiming(); got.GetApplyMs() != 0 || got.GetAgeMs() != 3_600_000 {
		t.Errorf("the report has %v", got)
	}
}

// TestTimingIsOffAndBounded: without a request there is no memory, no allocation and no byte.
func TestTimingIsOffAndBounded(t *testing.T) {
	var timings applyTimings
	u, now, status := &pb.Upsert{Bundle: "b", Generation: 2}, time.Now(), atoll.RowStatus{Generation: 2, Applied: true}
	frames := []*pb.FromAgent{reportOf("b")}
	size := proto.Size(frames[0])
	if n := testing.AllocsPerRun(100, func() {
		timings.beginTiming(u, now)
		timings.recordLatestStatusChange("b", now)
		timings.endTimingIfApplied("b", status)
		timings.addTimings(frames, now)
	}); n != 0 || timings != nil || proto.Size(frames[0]) != size {
		t.Errorf("timings that are off: %v allocations, %v, %d bytes more", n, timings, proto.Size(frames[0])-size)
	}
	for i := range 3 * maxTimings {
		timings.beginTiming(&pb.Upsert{Bundle: fmt.Sprint(i), Generation: 1, Timing: true}, now)
	}
	if len(timings) > maxTimings {
		t.Errorf("%d applies are measured at a time", len(timings))
	}
	with := reportOf("b")
	with.GetReport().Timing = &pb.Timing{ApplyMs: toMilliseconds(1 << 62), AgeMs: toMilliseconds(1 << 62)}
	if more := proto.Size(with) - size; more > 14 {
		t.Errorf("a timing takes %d bytes", more)
	}
}
