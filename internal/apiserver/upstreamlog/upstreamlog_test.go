package upstreamlog

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"k8s.io/klog/v2"
)

// A server may start while what another one left behind still logs: the race detector
// sees whether that is safe.
func TestTheLastDestinationWinsWhileOthersLog(t *testing.T) {
	RedirectLogs(slog.DiscardHandler)
	var logging sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		logging.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					klog.InfoS("still here")
					klog.Background().WithValues("of", "before").WithName("old").Info("still here")
				}
			}
		})
	}
	var last *bytes.Buffer
	for range 100 {
		last = &bytes.Buffer{}
		RedirectLogs(slog.NewTextHandler(last, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	close(stop)
	logging.Wait()
	klog.ErrorS(nil, "gone wrong", "for", "the last")
	klog.InfoS("of interest to upstream's developers")
	if got := last.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg="gone wrong" for="the last"`) {
		t.Errorf("logged %q", got)
	}
}
