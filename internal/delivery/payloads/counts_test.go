package payloads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// readValue returns the value of a metric: a counter's, a gauge's, or how often a histogram was observed.
func readValue(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue() + float64(out.GetHistogram().GetSampleCount())
}

// failingSource reads inputs of a renderer, and renders nothing.
type failingSource struct{ *Renderer }

func (failingSource) RenderManifest(context.Context, ManifestInput) (atoll.Manifest, error) {
	return atoll.Manifest{}, errors.New("defect")
}

// The work of a cache is counted: a rendering once, then hits; an encoding once for equal bases.
func TestTheWorkOfACacheIsCounted(t *testing.T) {
	metrics := newTestMetrics()
	cache := NewCache(t.Context(), newTestRenderer(newTestTables()), 1<<20, metrics)
	var p *Payload
	for range 3 {
		var err error
		if p, err = cache.GetOrRender(testRow("tokyo")); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprint(readValue(t, metrics.Renders), readValue(t, metrics.Hits), readValue(t, metrics.RenderFailures), readValue(t, metrics.RenderSeconds.(prometheus.Metric))); got != "1 2 0 1" {
		t.Errorf("renders, hits, failures, times: %s", got)
	}
	if got := readValue(t, metrics.Bytes); got != float64(p.bytes) || p.bytes == 0 {
		t.Errorf("%v bytes are kept, want %d", got, p.bytes)
	}
	for range 2 {
		if _, err := p.EncodeFor(Base{Content: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := readValue(t, metrics.Encodes); got != 1 {
		t.Errorf("%v encodings", got)
	}
	metrics = newTestMetrics()
	failing := NewCache(t.Context(), failingSource{newTestRenderer(newTestTables())}, 1<<20, metrics)
	if _, err := failing.GetOrRender(testRow("tokyo")); err == nil || err.Error() != "render revision r for cluster tokyo: defect" {
		t.Errorf("%v", err)
	}
	if got := fmt.Sprint(readValue(t, metrics.Renders), readValue(t, metrics.Hits), readValue(t, metrics.RenderFailures), readValue(t, metrics.RenderSeconds.(prometheus.Metric))); got != "1 0 1 0" {
		t.Errorf("renders, hits, failures, times of a failure: %s", got)
	}
	if len(failing.entries) > 0 {
		t.Error("a failure is kept")
	}
}

// The manifest that was used least recently is dropped first, and the last one stays however large it is.
func TestTheLeastRecentlyUsedManifestIsDropped(t *testing.T) {
	metrics := newTestMetrics()
	cache := NewCache(t.Context(), newTestRenderer(newTestTables()), 1<<20, metrics)
	row := func(revision string) state.Row {
		r := testRow("tokyo")
		r.Spec.Revision = revision
		return r
	}
	get := func(revision string) *Payload {
		p, err := cache.GetOrRender(row(revision))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := get("a")
	cache.maxBytes = 2*first.bytes + first.bytes/2
	get("b")
	get("a")
	get("c")
	if again := get("a"); again != first || len(cache.entries) != 2 {
		t.Errorf("of %d entries, the one used last is rendered again", len(cache.entries))
	}
	before := readValue(t, metrics.Renders)
	if get("b"); readValue(t, metrics.Renders) != before+1 {
		t.Error("the one used least recently is kept")
	}
	cache.maxBytes = 1
	last := get("d")
	if len(cache.entries) != 1 || cache.get(last.key) != last || readValue(t, metrics.Bytes) != float64(last.bytes) {
		t.Errorf("%d entries are kept of a cache that is too small for one", len(cache.entries))
	}
}

// A manifest is encoded for what an agent holds: without the objects that it has, and without any where that is
// unknown. Four encodings are kept.
func TestManifestsAreEncodedForWhatAgentsHold(t *testing.T) {
	tables := newTestTables()
	tables.content = &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}, APIVersion: "v1", UID: "u", Object: []byte(`{"data":{"a":"b"}}`)}}}
	metrics := newTestMetrics()
	cache := NewCache(t.Context(), newTestRenderer(tables), 1<<20, metrics)
	p, err := cache.GetOrRender(testRow("tokyo"))
	if err != nil {
		t.Fatal(err)
	}
	objects := func(b Base) (n int) {
		t.Helper()
		body, err := p.EncodeFor(b)
		if err != nil {
			t.Fatal(err)
		}
		var m atoll.Manifest
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		for _, i := range m.Items {
			if len(i.Object) > 0 && string(i.Object) != "null" {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		base Base
		want int
	}{{Base{}, 1}, {UnknownBase(), 0}, {Base{Content: "same", Hashes: p.Hashes}, 0}, {Base{Content: "other"}, 1}} {
		if got := objects(c.base); got != c.want {
			t.Errorf("%d objects for base %q, want %d", got, c.base.Content, c.want)
		}
	}
	if len(p.encoded) != maxEncodings {
		t.Errorf("%d encodings are kept", len(p.encoded))
	}
	if objects(Base{Content: "fifth"}); len(p.encoded) != 1 {
		t.Errorf("%d encodings are kept after a fifth", len(p.encoded))
	}
}
