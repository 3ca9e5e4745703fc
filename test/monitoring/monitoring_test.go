package monitoring

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"

	"atoll.dev/atoll/internal/metrictable"
)

const folder = "../../deploy/charts/atoll-hub/files/monitoring"

// scraped is a store that holds the exposition of a registry with every metric.
type scraped struct {
	*testing.T
	store  *tsdb.DB
	engine *promql.Engine
	parser parser.Parser
	names  map[string]metrictable.Definition
	now    time.Time
}

// values of a series at one scrape, by name and label values; a metric without one has 0.
type values map[string]float64

func newScraped(t *testing.T) *scraped {
	store, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	p := parser.NewParser(parser.Options{})
	s := &scraped{T: t, store: store, parser: p, names: map[string]metrictable.Definition{}, now: time.Unix(1_790_000_000, 0), engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, Parser: p,
	})}
	for _, m := range append(metrictable.HubMetrics(), metrictable.AgentMetrics()...) {
		s.names[m.Name] = m
		if m.Type == metrictable.Histogram {
			s.names[m.Name+"_bucket"] = m
		}
	}
	return s
}

// renderExposition returns what a program with every metric serves.
func renderExposition(t *testing.T, v values) []byte {
	registry := prometheus.NewRegistry()
	for _, m := range append(metrictable.HubMetrics(), metrictable.AgentMetrics()...) {
		registerMetric(registry, m, v)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.Bytes()
}

func registerMetric(registry *prometheus.Registry, m metrictable.Definition, v values) {
	series := map[string]float64{}
	for key, value := range v {
		if name, rest, _ := strings.Cut(key, " "); name == m.Name {
			series[rest] = value
		}
	}
	if len(series) == 0 {
		series[strings.TrimSpace(strings.Repeat("x ", len(m.Labels)))] = 0
	}
	counters, gauges, histograms := m.NewCounterVec(), m.NewGaugeVec(), m.NewHistogramVec()
	for rest, value := range series {
		switch of := strings.Fields(rest); m.Type {
		case metrictable.Counter:
			counters.WithLabelValues(of...).Add(value)
		case metrictable.Gauge:
			gauges.WithLabelValues(of...).Set(value)
		case metrictable.Histogram:
			histograms.WithLabelValues(of...).Observe(value)
		}
	}
	registry.MustRegister(map[metrictable.Type]prometheus.Collector{metrictable.Counter: counters, metrictable.Gauge: gauges, metrictable.Histogram: histograms}[m.Type])
}

// scrapeAt appends an exposition at a time.
func (s *scraped) scrapeAt(at time.Time, v values) {
	s.Helper()
	p, err := textparse.New(renderExposition(s.T, v), "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		s.Fatal(err)
	}
	app := s.store.Appender(s.Context())
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		_, _, value := p.Series()
		b := labels.NewBuilder(l)
		b.Set("instance", "hub-0").Set("job", "atoll")
		if _, err := app.Append(0, b.Labels(), at.UnixMilli(), value); err != nil {
			s.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		s.Fatal(err)
	}
}

// evaluateNow returns the vector of an expression now.
func (s *scraped) evaluateNow(expr string) promql.Vector {
	s.Helper()
	q, err := s.engine.NewInstantQuery(s.Context(), s.store, nil, expr, s.now)
	if err != nil {
		s.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(s.Context())
	if result.Err != nil {
		s.Fatalf("%s: %v", expr, result.Err)
	}
	v, err := result.Vector()
	if err != nil {
		s.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// checkNames fails on a metric, or a label of it, that neither the table nor a rule has.
func (s *scraped) checkNames(expr string, recorded map[string]bool) {
	s.Helper()
	parsed, err := s.parser.ParseExpr(expr)
	if err != nil {
		s.Errorf("%s: %v", expr, err)
		return
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		selector, ok := n.(*parser.VectorSelector)
		if !ok || recorded[selector.Name] {
			return nil
		}
		m, known := s.names[selector.Name]
		if !known {
			s.Errorf("%s: no program has the metric %s", expr, selector.Name)
		}
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName && !slices.Contains(m.Labels, matcher.Name) {
				s.Errorf("%s: %s has no label %s", expr, selector.Name, matcher.Name)
			}
		}
		return nil
	})
}

func readRules(t *testing.T) (out []rulefmt.Rule) {
	groups, errs := rulefmt.ParseFile(filepath.Join(folder, "rules.yaml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// readExpressions returns the expressions of all panels of all dashboards.
func readExpressions(t *testing.T) (out []string) {
	files, err := filepath.Glob(filepath.Join(folder, "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				out = append(out, target.Expr)
			}
		}
	}
	return out
}

// TestExpressionsFitTheMetrics evaluates every rule and every panel over a real exposition.
func TestExpressionsFitTheMetrics(t *testing.T) {
	s, recorded := newScraped(t), map[string]bool{}
	for _, r := range readRules(t) {
		recorded[r.Record] = true
	}
	for i := range 4 {
		s.scrapeAt(s.now.Add(time.Duration(i-3)*time.Minute), nil)
	}
	expressions := readExpressions(t)
	for _, r := range readRules(t) {
		expressions = append(expressions, r.Expr)
		if r.Alert != "" && (r.Annotations["summary"] == "" || r.Annotations["runbook"] == "" || r.Labels["severity"] == "") {
			t.Errorf("%s lacks a summary, a runbook or a severity", r.Alert)
		}
	}
	for _, expr := range expressions {
		s.checkNames(expr, recorded)
		s.evaluateNow(expr)
	}
}

// TestAlertsFire gives each alert the values by which it fires, and those of a healthy fleet.
func TestAlertsFire(t *testing.T) {
	now := float64(1_790_000_000)
	healthy := values{
		"atoll_hub_leading": 1, "atoll_clusters Ready True AgentConnected": 95, "atoll_clusters Ready Unknown StreamLost": 5,
		"atoll_hub_certificate_expiry_timestamp_seconds api": now + 90*86400, "atoll_store_size_bytes": 1e9, "atoll_store_quota_bytes": 8e9,
		"atoll_bundle_oldest_wait_seconds Ready ClustersAway": 1e6, "atoll_agent_linked": 1,
	}
	fires := map[string]values{
		"AtollOldestWaitTooOld":            {"atoll_bundle_oldest_wait_seconds Ready Degraded": 4000},
		"AtollRemovalWaitsForConfirmation": {"atoll_bundle_oldest_wait_seconds RemovalHeld RemovalHeld": 90000},
		"AtollClustersDisconnected":        {"atoll_clusters Ready Unknown StreamLost": 50},
		"AtollNoHubLeads":                  {"atoll_hub_leading": 0},
		"AtollHubHolds":                    {"atoll_hub_holding": 1},
		"AtollStoreNearQuota":              {"atoll_store_size_bytes": 7e9},
		"AtollStoreRefusesWrites":          {"atoll_store_space_state": 1},
		"AtollHubCertificateExpires":       {"atoll_hub_certificate_expiry_timestamp_seconds api": now + 86400},
		"AtollAgentCertificatesOverdue":    {"atoll_gateway_agent_certificates_overdue": 2},
		"AtollRenderFails":                 {"atoll_gateway_render_failures_total": 10},
		"AtollQueueStuck":                  {"atoll_queue_depth place": 500},
		"AtollAgentNotLinked":              {"atoll_agent_linked": 0},
	}
	rules, recorded := readRules(t), map[string]string{}
	for _, r := range rules {
		if r.Record != "" {
			recorded[r.Record] = r.Expr
			continue
		}
		expr := r.Expr
		for name, of := range recorded {
			expr = strings.ReplaceAll(expr, name, "("+of+")")
		}
		changed, listed := fires[r.Alert]
		if !listed {
			t.Errorf("%s has no case", r.Alert)
		}
		for _, fire := range []bool{false, true} {
			s := newScraped(t)
			for i := range 4 {
				v := values{}
				for key, value := range healthy {
					v[key] = value
				}
				for key, value := range changed {
					if fire {
						v[key] = value
						if strings.Contains(key, "_total") {
							v[key] = value * float64(i)
						}
					}
				}
				s.scrapeAt(s.now.Add(time.Duration(i-3)*time.Minute), v)
			}
			if got := len(s.evaluateNow(expr)) > 0; got != fire {
				t.Errorf("%s fires: %t, want %t", r.Alert, got, fire)
			}
		}
	}
}

// An external etcd that does not report its quota has a quota of 0, of which nothing is used.
func TestAnUnknownQuotaHasNoRatio(t *testing.T) {
	s := newScraped(t)
	s.scrapeAt(s.now, values{"atoll_store_size_bytes": 7e9, "atoll_store_quota_bytes": 0})
	rules := readRules(t)
	at := slices.IndexFunc(rules, func(r rulefmt.Rule) bool { return r.Record == "atoll:store_used:ratio" })
	if got := s.evaluateNow(rules[at].Expr); len(got) > 0 {
		t.Errorf("the ratio is %v", got)
	}
}
