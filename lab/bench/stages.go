package bench

import (
	"context"
	"fmt"
	"strings"

	"atoll.dev/atoll/lab/bench/measure"
)

// changeStages are the stages of atoll_change_seconds, in order, each with the parts that end in it.
var changeStages = []struct{ name, parts string }{
	{"bound", "bind"}, {"ordered", "place"}, {"applied", "render, send, apply, report"}, {"healthy", "the member's own controllers, watch, report"}, {"shown", "summarise"},
}

// readStages reads the times of changes by stage from the hub's metrics.
func (b *labBench) readStages(ctx context.Context) (map[string]measure.Histogram, error) {
	m, err := measure.ReadMetrics(ctx, b.hubClient.CoreV1().RESTClient())
	if err != nil {
		return nil, err
	}
	return m.HistogramsByLabel("atoll_change_seconds", "stage"), nil
}

// describeStages returns the mean time at which each stage ended between two readings, since the hub
// saw the write.
func describeStages(before, after map[string]measure.Histogram) string {
	var parts []string
	for _, stage := range changeStages {
		if h := after[stage.name].Subtract(before[stage.name]); h.Count > 0 {
			parts = append(parts, fmt.Sprintf("%s after %.0f ms (%s)", stage.name, 1000*h.Sum/float64(h.Count), stage.parts))
		}
	}
	return "means since the hub sees the write: " + strings.Join(parts, ", ")
}
