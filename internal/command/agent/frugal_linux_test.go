package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// residentFilePages returns the resident pages of files, in kB.
func residentFilePages(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil || !found {
		t.Skipf("the kernel states no RssFile: %v", err)
	}
	return kib
}

// The start of the test reads more of the program than what runs after it.
func TestDropPages(t *testing.T) {
	before := residentFilePages(t)
	releaseProgramPages()
	if after := residentFilePages(t); after > before/2 {
		t.Errorf("%d kB of the program stay of %d kB", after, before)
	}
}

func TestPagesAreDroppedAfterTheStartAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var drops atomic.Int64
		go releasePagesRepeatedly(ctx, func() { drops.Add(1) })
		for _, step := range []struct {
			wait time.Duration
			want int64
		}{{59 * time.Second, 0}, {2 * time.Second, 1}, {9 * time.Minute, 1}, {time.Minute, 2}, {10 * time.Minute, 3}} {
			time.Sleep(step.wait)
			synctest.Wait()
			if got := drops.Load(); got != step.want {
				t.Errorf("%d drops after another %v, want %d", got, step.wait, step.want)
			}
		}
		cancel()
		synctest.Wait()
		time.Sleep(time.Hour)
		if got := drops.Load(); got != 3 {
			t.Errorf("%d drops after the end of the agent, want 3", got)
		}
	})
}
