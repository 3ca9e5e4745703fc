package diff

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/preview"
)

func TestFormatDiffs(t *testing.T) {
	diffs := []ClusterDiff{
		{Cluster: "lima"},
		{Cluster: "oslo", Fields: []FieldDiff{
			{Path: "/spec/replicas", Live: int64(5), Wanted: int64(2), Managers: []string{"kubectl-edit", "x\n"}},
			{Path: "/spec/paused", Live: true},
			{Path: "/data/key", Hidden: true},
			{Path: "/data/long", Wanted: strings.Repeat("a", 200)},
		}},
		{Cluster: "quito"},
		{Cluster: "rome", Absent: true},
		{Cluster: "tokyo", Error: "away\x1b[2J"},
	}
	want := `oslo: 4 differences
  /spec/replicas: 5 -> 2 (kubectl-edit, x\x0a)
  /spec/paused: true -> none
  /data/key: (not shown)
  /data/long: none -> "` + strings.Repeat("a", 119) + `…
rome: does not have it, and would create it
tokyo: could not be compared: away\x1b[2J
no difference: lima, quito
`
	if got := formatDiffs(diffs, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := formatDiffs(diffs, true); !strings.Contains(got, strings.Repeat("a", 200)) {
		t.Errorf("a value is cut with --all:\n%s", got)
	}
}

func TestTheExitCodeFollowsFromAllClusters(t *testing.T) {
	same, differs, absent, failed := ClusterDiff{}, ClusterDiff{Fields: []FieldDiff{{}}}, ClusterDiff{Absent: true}, ClusterDiff{Error: "away"}
	for name, c := range map[string]struct {
		diffs []ClusterDiff
		more  int
		is    error
		says  string
	}{
		"same":             {diffs: []ClusterDiff{same}},
		"a difference":     {diffs: []ClusterDiff{same, differs}, is: ErrDifferences},
		"absent":           {diffs: []ClusterDiff{absent}, is: ErrDifferences},
		"a failure":        {diffs: []ClusterDiff{failed, differs}, says: "1 cluster could not be compared"},
		"more than listed": {diffs: []ClusterDiff{same}, more: 2, says: "2 clusters more were not compared"},
	} {
		err := summarizeDiffs(c.diffs, c.more)
		if c.says == "" && !errors.Is(err, c.is) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The dry run applies what the agent applies: without the fields that belong to the cluster, and to
// exactly the object that was read.
func TestWantedObject(t *testing.T) {
	live := &unstructured.Unstructured{}
	live.SetUID("u1")
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}
	got, err := wantedObject(key, &preview.RenderedContent{APIVersion: "v1", Object: []byte(`{"data":{"a":"1","b":"2"}}`), MemberOwned: []string{"/data/b"}}, live)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got.Object)
	if want := `{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap","metadata":{"name":"c","namespace":"shop","uid":"u1"}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	for _, bad := range []preview.RenderedContent{{Object: []byte(`[]`)}, {Object: []byte(`null`)}, {Object: []byte(`{}`), MemberOwned: []string{"x"}}} {
		if _, err := wantedObject(key, &bad, live); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
