package report

import (
	"encoding/json"
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// Each difference keeps the time of its first report, and drift leaves the row ready.
func TestDriftHasTimes(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	item := func(d *atoll.Drift) Input {
		return Input{Generation: 1, Items: []Item{{Key: key, Applied: true, Observed: true, Health: atoll.Healthy, Drift: d}}}
	}
	first := BuildStatus(item(&atoll.Drift{Total: 1, Fields: []atoll.DriftField{{Path: "/data/a"}}}), nil, 5)
	next := BuildStatus(item(&atoll.Drift{Total: 2, Fields: []atoll.DriftField{{Path: "/data/a"}, {Path: "/data/b"}}}), &first, 9)
	if f := next.Items[0].Drift.Fields; f[0].Since != 5 || f[1].Since != 9 {
		t.Errorf("%+v", f)
	}
	if next.State != atoll.RowReady || next.Drifted != 1 || next.Ready != 1 {
		t.Errorf("%+v", next)
	}
	if none := BuildStatus(item(nil), &next, 10); none.Drifted != 0 || len(none.Items) != 0 {
		t.Errorf("without drift: %+v", none)
	}
}

// Ten thousand drifted objects of a hundred Bundles are reported in less than a megabyte. Each Bundle counts
// those that had no room.
func TestManyDriftedObjectsAreBounded(t *testing.T) {
	const bundles, objects = 100, 100
	drifts := func(_ int, it *Item) {
		it.Reflected, it.Drift = nil, &atoll.Drift{Total: 3}
		for i := range 3 {
			it.Drift.Fields = append(it.Drift.Fields, atoll.DriftField{Path: fmt.Sprintf("/spec/template/spec/containers/name=web/env/name=VALUE_%d/value", i), Live: `"the value in the member"`, Wanted: `"the value of the template"`, Managers: []string{"argocd-controller"}})
		}
		it.Why, it.Text = atoll.ReasonDrifted, "3 fields differ: /spec/template/spec/containers/name=web/env/name=VALUE_0/value"
	}
	total := 0
	for range bundles {
		s := BuildStatus(Input{Generation: 1, Items: manyItems(objects, "Deployment", drifts)}, nil, 1)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		total += len(text)
		if s.Drifted != objects || s.UnlistedNotReady != 0 || s.Ready != objects || len(s.Items) < 20 {
			t.Fatalf("%d drifted, %d listed, %d not ready of those that are not listed", s.Drifted, len(s.Items), s.UnlistedNotReady)
		}
		for _, it := range s.Items {
			if it.Drift.Total != 3 || len(it.Drift.Fields) == 0 {
				t.Fatalf("%+v", it.Drift)
			}
		}
	}
	if total >= 1<<20 {
		t.Errorf("%d bytes are reported", total)
	}
	mixed := append(manyItems(200, "Deployment", drifts), manyItems(1, "Job", func(_ int, it *Item) { it.Health, it.Why = atoll.Degraded, "Failed" })...)
	if s := BuildStatus(Input{Generation: 1, Items: mixed}, nil, 1); s.Items[len(s.Items)-1].Key.Kind != "Job" {
		t.Errorf("drift hides what is degraded: %+v", s.Items[len(s.Items)-1].Key)
	}
}
