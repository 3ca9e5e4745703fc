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

// Metrics are one reading of a hub's /metrics. They are never changed.
type Metrics struct {
	families map[string]*dto.MetricFamily
}

// ReadMetrics of the hub that server leads to.
func ReadMetrics(ctx context.Context, server rest.Interface) (Metrics, error) {
	body, err := server.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return Metrics{}, fmt.Errorf("read the hub's metrics: %w", err)
	}
	defer body.Close()
	return ParseMetrics(body)
}

// ParseMetrics reads Prometheus' text format.
func ParseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return Metrics{}, fmt.Errorf("read the hub's metrics: %w", err)
	}
	return Metrics{families: families}, nil
}

// Sum of a metric over all series that have the labels, which are name and value in
// turn. A metric that is not there is 0.
func (m Metrics) Sum(name string, labels ...string) float64 {
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

// By gives a metric's values by those of a label.
func (m Metrics) By(name, label string) map[string]float64 {
	values := map[string]float64{}
	for _, s := range m.families[name].GetMetric() {
		values[labelsOf(s)[label]] += s.GetCounter().GetValue() + s.GetGauge().GetValue() + s.GetUntyped().GetValue()
	}
	return values
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// Writes are counts of requests by "VERB resource".
type Writes map[string]float64

var writing = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// Writes that the hub has done since it started: requests that changed the store, and
// what went straight to it. Reviews, dry runs and what failed are left out, and Leases, of
// which a metric does not tell whose they are: see Etcd.Upkeep.
func (m Metrics) Writes() Writes {
	counts := Writes{}
	for _, s := range m.families["apiserver_request_total"].GetMetric() {
		label := labelsOf(s)
		resource := label["resource"]
		switch {
		case !slices.Contains(writing, label["verb"]), !strings.HasPrefix(label["code"], "2"), label["dry_run"] != "":
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

// Since gives what was written after before; what is none is left out.
func (w Writes) Since(before Writes) Writes {
	d := Writes{}
	for key, n := range w {
		if n > before[key] {
			d[key] = n - before[key]
		}
	}
	return d
}

// Without gives the writes less some of others, for instance the user's own.
func (w Writes) Without(others Writes) Writes {
	d := maps.Clone(w)
	for key, n := range others {
		if d[key] -= n; d[key] <= 0 {
			delete(d, key)
		}
	}
	return d
}

// Total of all.
func (w Writes) Total() float64 {
	total := 0.0
	for _, n := range w {
		total += n
	}
	return total
}

// String lists the writes, the most first.
func (w Writes) String() string {
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
