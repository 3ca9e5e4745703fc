package measure

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// HubMetrics is one immutable reading of a hub's /metrics.
type HubMetrics struct {
	families map[string]*dto.MetricFamily
}

// ReadMetrics reads the metrics of the hub behind server.
func ReadMetrics(ctx context.Context, server rest.Interface) (HubMetrics, error) {
	body, err := server.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return HubMetrics{}, fmt.Errorf("read the hub's metrics: %w", err)
	}
	defer body.Close()
	return ParseMetrics(body)
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(text io.Reader) (HubMetrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return HubMetrics{}, fmt.Errorf("read the hub's metrics: %w", err)
	}
	return HubMetrics{families: families}, nil
}

// SumSeries sums a metric over all series with the labels, given as name and value in turn.
// An absent metric is 0.
func (m HubMetrics) SumSeries(name string, labels ...string) float64 {
	total := 0.0
	for _, s := range m.families[name].GetMetric() {
		has := labelsOf(s)
		matches := true
		for i := 0; i+1 < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			total += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
		}
	}
	return total
}

// ValuesByLabel returns a metric's values by the values of a label.
func (m HubMetrics) ValuesByLabel(name, label string) map[string]float64 {
	values := map[string]float64{}
	for _, s := range m.families[name].GetMetric() {
		values[labelsOf(s)[label]] += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
	}
	return values
}

// Histogram is the sum of what a histogram observed, and how much that was.
type Histogram struct {
	Sum   float64
	Count uint64
}

// Subtract returns what was observed since an earlier reading.
func (h Histogram) Subtract(before Histogram) Histogram {
	return Histogram{h.Sum - before.Sum, h.Count - before.Count}
}

// HistogramsByLabel returns a metric's histograms by the values of a label.
func (m HubMetrics) HistogramsByLabel(name, label string) map[string]Histogram {
	out := map[string]Histogram{}
	for _, s := range m.families[name].GetMetric() {
		h, value := s.GetHistogram(), labelsOf(s)[label]
		out[value] = Histogram{out[value].Sum + h.GetSampleSum(), out[value].Count + h.GetSampleCount()}
	}
	return out
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// WriteCounts are counts of requests by "VERB resource".
type WriteCounts map[string]float64

var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// WriteCounts returns the hub's writes since its start: requests that changed the store,
// and direct writes to it. Reviews, dry runs and failures are left out. Leases are left out
// because a metric does not show their owner: see EtcdClient.ReadLeaseWrites.
func (m HubMetrics) WriteCounts() WriteCounts {
	counts := WriteCounts{}
	for _, s := range m.families["apiserver_request_total"].GetMetric() {
		label := labelsOf(s)
		resource := label["resource"]
		switch {
		case !slices.Contains(writeVerbs, label["verb"]), !strings.HasPrefix(label["code"], "2"), label["dry_run"] != "":
			continue
		case resource == "leases", strings.HasSuffix(resource, "reviews"):
			continue
		}
		if label["subresource"] != "" {
			resource += "/" + label["subresource"]
		}
		counts[label["verb"]+" "+resource] += s.GetCounter().GetValue()
	}
	for _, s := range m.families["atoll_direct_writes_total"].GetMetric() {
		label := labelsOf(s)
		resource := label["resource"]
		if label["subresource"] != "" {
			resource += "/" + label["subresource"]
		}
		counts[label["verb"]+" "+resource] += s.GetCounter().GetValue()
	}
	return counts
}

// CountsSince returns the writes after before, without zero counts.
func (w WriteCounts) CountsSince(before WriteCounts) WriteCounts {
	d := WriteCounts{}
	for key, n := range w {
		if n > before[key] {
			d[key] = n - before[key]
		}
	}
	return d
}

// SubtractCounts returns the writes without those in others, for instance the user's own.
func (w WriteCounts) SubtractCounts(others WriteCounts) WriteCounts {
	d := maps.Clone(w)
	for key, n := range others {
		if d[key] -= n; d[key] <= 0 {
			delete(d, key)
		}
	}
	return d
}

// TotalCount returns the sum of all counts.
func (w WriteCounts) TotalCount() float64 {
	total := 0.0
	for _, n := range w {
		total += n
	}
	return total
}

// String lists the writes, the most frequent first.
func (w WriteCounts) String() string {
	keys := slices.SortedFunc(maps.Keys(w), func(a, b string) int {
		if w[a] != w[b] {
			return int(w[b] - w[a])
		}
		return strings.Compare(a, b)
	})
	words := make([]string, len(keys))
	for i, key := range keys {
		words[i] = fmt.Sprintf("%s %.0f", key, w[key])
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}
