package payloads

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/reconcile"
)

// Time in which the goroutine does not run does not count, and work does.
func TestCPUTimeCountsWorkAlone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("wall time is measured here")
	}
	synctest.Test(t, func(t *testing.T) {
		if cost := measureCPUTime(func() { time.Sleep(time.Hour) }); cost < 0 || cost > time.Minute {
			t.Errorf("a wait of an hour costs %s", cost)
		}
	})
	begin := time.Now()
	cost := measureCPUTime(func() {
		from, _ := readThreadTime()
		for to := from; to-from < 20*time.Millisecond; to, _ = readThreadTime() {
		}
	})
	if took := time.Since(begin); cost < 20*time.Millisecond || cost > took+10*time.Millisecond {
		t.Errorf("20 ms of work cost %s, and took %s", cost, took)
	}
}

// Wall time counts while the system refuses to report the CPU time. A warning says so.
func TestWallTimeCountsWithoutCPUTime(t *testing.T) {
	known := func() (time.Duration, bool) { return time.Millisecond, true }
	refused := func() (time.Duration, bool) { return 0, false }
	calls := 0
	refusedLater := func() (time.Duration, bool) { calls++; return 0, calls == 1 }
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			clock threadClock
			want  time.Duration
		}{"known": {known, 0}, "refused": {refused, 3 * time.Second}, "refused later": {refusedLater, 3 * time.Second}} {
			if cost := measureByClock(c.clock, func() { time.Sleep(3 * time.Second) }); cost != c.want {
				t.Errorf("%s: costs %s, want %s", name, cost, c.want)
			}
		}
	})
	var log strings.Builder
	warnOfWallTime(known, slog.New(slog.NewTextHandler(&log, nil)))
	if log.String() != "" {
		t.Errorf("a system that reports the CPU time has the log %s", &log)
	}
	warnOfWallTime(refused, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "wall time") {
		t.Errorf("the log is %s", &log)
	}
}

// A panic comes through.
func TestMeasuringPassesAPanicOn(t *testing.T) {
	if p := reconcile.ContainPanicCounted("test", func() { measureCPUTime(func() { panic("defect") }) }); p == nil || p.Value != "defect" {
		t.Errorf("%v", p)
	}
}
