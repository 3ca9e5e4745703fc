package drift

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/preview"
)

func TestFormatDrifts(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	web := preview.DriftedObject{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", Cluster: "oslo", DifferentFields: 3, Fields: []preview.DriftedField{
		{Path: "/spec/replicas", Live: "5", Wanted: "2", Managers: []string{"kubectl-edit", "x\n"}, Since: ago(3 * time.Hour)},
		{Path: "/spec/paused", Live: "true"},
	}}
	missing := web
	missing.Cluster, missing.Missing, missing.MissingSince, missing.Disconnected = "tokyo", true, ago(2*time.Minute), true
	secret := preview.DriftedObject{Kind: "Secret", Namespace: "shop", Name: "key", Cluster: "oslo", DifferentFields: 1, Outdated: true, Fields: []preview.DriftedField{{Path: "/data/token"}}}
	role := preview.DriftedObject{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r", Cluster: "oslo", Missing: true}
	got := formatDrifts(&preview.Drifts{Objects: []preview.DriftedObject{web, missing, secret, role}, More: 4}, now)
	want := `Deployment.apps shop/web
  oslo: 3 differences
    /spec/replicas: 5 -> 2 (kubectl-edit, x\x0a), for 3h
    /spec/paused: true -> none
    and 1 more, which atoll diff lists
  tokyo: missing, for 2m (as of the last report: the cluster is disconnected)
Secret shop/key
  oslo: 1 difference (not compared with the latest content yet)
    /data/token: (not shown)
ClusterRole.rbac.authorization.k8s.io r
  oslo: missing
and 4 more objects with drift: name a namespace or a cluster, or compare one by atoll diff
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := formatDrifts(&preview.Drifts{}, now); got != "no drift\n" {
		t.Errorf("none: %q", got)
	}
}

func TestTheExitCode(t *testing.T) {
	drifted := []preview.DriftedObject{{}}
	for name, c := range map[string]struct {
		found preview.Drifts
		want  string
	}{
		"none":                   {preview.Drifts{}, ""},
		"some":                   {preview.Drifts{Objects: drifted}, ErrDrift.Error()},
		"more":                   {preview.Drifts{More: 1}, ErrDrift.Error()},
		"not compared":           {preview.Drifts{NotCompared: 2}, "2 rows are not compared with their latest content yet: atoll get rows shows what they wait for"},
		"some, and not compared": {preview.Drifts{Objects: drifted, NotCompared: 1}, "1 row is not compared with its latest content yet: atoll get rows shows what it waits for"},
	} {
		got := ""
		if err := checkDrifts(&c.found); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
