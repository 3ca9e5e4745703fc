package crd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/preview"
)

func TestFormatChange(t *testing.T) {
	const v1 = "- {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}"
	beta := func(more string) string { return strings.ReplaceAll(template, v1, v1+"\n  - "+more) }
	for name, c := range map[string]struct{ live, after, want string }{
		"new":           {"", template, "widgets.example.com created: v1 (stored), v1beta1"},
		"the same":      {template + "status: {storedVersions: [v1]}\n", template, "widgets.example.com unchanged: v1 (stored), v1beta1"},
		"a version":     {template, beta("{name: v2, served: false, storage: false}"), "widgets.example.com changed: v2 added"},
		"other version": {template, strings.ReplaceAll(template, "name: v1beta1", "name: v1beta2"), "widgets.example.com changed: v1beta2 added, v1beta1 removed"},
		"a schema": {template, strings.ReplaceAll(template, "type: object", "type: string"),
			"widgets.example.com changed: its versions stay v1 (stored), v1beta1, and it differs at /spec/versions"},
		"a label": {template, strings.ReplaceAll(template, "team: shop", "team: sales"),
			"widgets.example.com changed: its versions stay v1 (stored), v1beta1, and it differs at /metadata/labels/team"},
		"not served": {"", strings.ReplaceAll(template, "served: true, storage: false", "served: false, storage: false"), "widgets.example.com created: v1 (stored), v1beta1 (not served)"},
		"escaped":    {template, strings.ReplaceAll(template, "name: v1beta1", `name: "v\e[2J"`), `widgets.example.com changed: v\x1b[2J added, v1beta1 removed`},
	} {
		p := pulled{definition: newDefinition(t, installed), after: decodeObject(t, c.after)}
		if c.live != "" {
			p.live = decodeObject(t, c.live)
		}
		if got := p.formatChange(); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

func TestJoinPathsCountsTheRest(t *testing.T) {
	if got, want := joinPaths(strings.Fields("/a /b /c /d /e /f /g")), "/a, /b, /c, /d, /e and 2 more"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Clusters that the plan only takes something out of are no reach.
func TestReachOfAPlan(t *testing.T) {
	got := reachOf(&preview.Plan{Bundles: []preview.BundlePlan{
		{Source: "HubSettings hub", Rows: []preview.RowGroup{{Clusters: []string{"tokyo-1", "lima"}, Change: preview.ChangeAdded}, {Clusters: []string{"rome"}, Change: preview.ChangeRemoved}}},
		{Source: "ClusterPropagationPolicy all", Rows: []preview.RowGroup{{Clusters: []string{"lima"}, Change: preview.ChangeChanged}}},
		{Source: "PropagationPolicy idle"},
	}})
	if !slices.Equal(got.clusters, []string{"lima", "tokyo-1"}) || !slices.Equal(got.sources, []string{"ClusterPropagationPolicy all", "HubSettings hub"}) {
		t.Errorf("%+v", got)
	}
}

func TestFormatNext(t *testing.T) {
	one := &pulled{definition: newDefinition(t, installed)}
	for name, c := range map[string]struct {
		changed []*pulled
		to      reach
		want    []string
	}{
		"stays":   {[]*pulled{one}, reach{}, []string{"stays on the hub until an object of its kind is placed", "does so with propagateDeps: true", "Atoll takes back an upgrade in tokyo-1: make it on the hub", "kubectl label crd widgets.example.com atoll.dev/hub-only=true"}},
		"goes":    {[]*pulled{one}, reach{clusters: []string{"lima", "rome"}, sources: []string{"HubSettings hub"}}, []string{"It goes at once to lima, rome (HubSettings hub)."}},
		"many":    {[]*pulled{one, one}, reach{clusters: strings.Fields("a b c d e f")}, []string{"They go at once to a, b, c, d, e and 1 cluster more", "label crd NAME "}},
		"unknown": {[]*pulled{one}, reach{err: errors.New("too \x1blarge")}, []string{`(too \x1blarge): atoll explain crd/widgets.example.com shows it`}},
	} {
		got := formatNext("tokyo-1", c.changed, c.to)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
	}
}
