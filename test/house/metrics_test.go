package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/metricpage"
	"atoll.dev/atoll/internal/metrictable"
)

// TestMetricsPageIsFresh compares docs/metrics.md with the table of metrics.
func TestMetricsPageIsFresh(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != metricpage.RenderMetricPage() {
		t.Error("docs/metrics.md is stale: run `make generate`")
	}
}

// TestMetricsArePlain holds the names of metrics to Prometheus' conventions, and their help to plain
// sentences.
func TestMetricsArePlain(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range append(metrictable.HubMetrics(), metrictable.AgentMetrics()...) {
		if seen[m.Name] || !strings.HasPrefix(m.Name, "atoll_") || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: give it a name of its own that begins with atoll_, and a sentence", m.Name)
		}
		if seen[m.Name] = true; strings.HasSuffix(m.Name, "_total") != (m.Type == metrictable.Counter) {
			t.Errorf("%s: counters end in _total, and no other metric does", m.Name)
		}
		for _, label := range m.Labels {
			if slices.Contains([]string{"cluster", "bundle", "namespace", "name", "user"}, label) {
				t.Errorf("%s: the label %s has as many values as the fleet has objects", m.Name, label)
			}
		}
	}
}

// TestMetricsAreOfTheTable refuses metrics that are made without the table, and entries of the
// table of which no metric is made.
func TestMetricsAreOfTheTable(t *testing.T) {
	used := map[string]bool{}
	var declared []string
	for _, s := range loadSources(t) {
		if s.test || s.generated || !isWithin("internal/...", s.dir) {
			continue
		}
		inTable := s.dir == "internal/metrictable"
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.SelectorExpr:
				of, ok := x.X.(*ast.Ident)
				if ok && of.Name == "metrictable" {
					used[x.Sel.Name] = true
				}
				if ok && of.Name == "prometheus" && !inTable && slices.ContainsFunc([]string{"NewCounter", "NewGauge", "NewHistogram", "NewSummary", "NewDesc"}, func(p string) bool { return strings.HasPrefix(x.Sel.Name, p) }) {
					t.Errorf("%s: declare the metric in internal/metrictable, and make it of its Definition", s.positionOf(x))
				}
			case *ast.ValueSpec:
				if inTable && len(x.Values) == 1 {
					if call, ok := x.Values[0].(*ast.CallExpr); ok && slices.Contains([]string{"addCounter", "addGauge", "addHistogram"}, nameOfExpression(call.Fun)) {
						declared = append(declared, x.Names[0].Name)
					}
				}
			}
			return true
		})
	}
	if len(declared) != len(metrictable.HubMetrics())+len(metrictable.AgentMetrics()) {
		t.Errorf("%d declarations for %d entries", len(declared), len(metrictable.HubMetrics())+len(metrictable.AgentMetrics()))
	}
	for _, name := range declared {
		if !used[name] {
			t.Errorf("no component makes metrictable.%s", name)
		}
	}
}
