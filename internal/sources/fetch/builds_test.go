package fetch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/renderchild"
)

const chartFile = "apiVersion: v2\nname: shop\nversion: 1.0.0\n"

// Charts and kustomizations of a commit are found and rendered. A commit that changes no file of theirs sends nothing.
func TestBuildsOfACommit(t *testing.T) {
	r := newRepository(t)
	url := r.serve(t)
	r.commit(t, map[string]string{
		"chart/Chart.yaml": chartFile, "chart/templates/a.yaml": strings.ReplaceAll(configMap, "name: a", "name: '{{ .Release.Name }}'"), "prod.yaml": "x: 1\n",
		"base/kustomization.yaml": "resources: [b.yaml]\n", "base/b.yaml": configMap, "over/kustomization.yaml": "namePrefix: p-\nresources: [../base]\n", "README.md": "x",
	})
	wants := []Want{
		{ID: "chart", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"chart"}, Options: render.Options{ReleaseName: "web", Helm: &render.HelmOptions{ValuesFiles: []string{"prod.yaml"}}}}},
		{ID: "custom", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"over"}}},
	}
	names := func(cs []Content) string {
		t.Helper()
		var out []string
		for _, c := range cs {
			text := describe(c)
			for _, o := range c.Objects {
				text += " " + o.Fields["metadata"].(map[string]any)["name"].(string)
			}
			out = append(out, text)
		}
		return strings.Join(out, "; ")
	}
	first := mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wants})
	if got := names(first); got != "chart/templates/a.yaml:1 web; over/kustomization.yaml:1 p-a" {
		t.Fatal(got)
	}
	if first[0].Builds[0].Chart != "shop-1.0.0" || first[1].Builds[0].Type != render.Kustomize {
		t.Errorf("%+v", first)
	}
	seen := func() string {
		t.Helper()
		for i := range wants {
			wants[i].SeenDigest = first[i].Digest
		}
		return names(mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wants}))
	}
	r.commit(t, map[string]string{"README.md": "y", "chart2/Chart.yaml": chartFile, "base/unused.yaml": configMap})
	if got := seen(); got != "unchanged; unchanged" {
		t.Errorf("another file: %s", got)
	}
	r.commit(t, map[string]string{"prod.yaml": "x: 2\n"})
	if got := seen(); got != "chart/templates/a.yaml:1 web; unchanged" {
		t.Errorf("a file of values: %s", got)
	}
	r.commit(t, map[string]string{"prod.yaml": "x: 1\n", "base/b.yaml": strings.ReplaceAll(configMap, "name: a", "name: b")})
	if got := seen(); got != "unchanged; over/kustomization.yaml:1 p-b" {
		t.Errorf("a file of a base: %s", got)
	}
}

// Values that the hub gives go through both children, and other values of a seen commit are rendered. Fields that differ in each rendering
// come back noted.
func TestInputsOfAFetch(t *testing.T) {
	r := newRepository(t)
	url := r.serve(t)
	r.commit(t, map[string]string{"Chart.yaml": chartFile, "templates/a.yaml": configMap + "data: {a: {{ .Values.a }}, b: {{ randAlpha 9 }}}\n"})
	fetch := func(value, seen string) Content {
		t.Helper()
		w := Want{ID: "w", Ref: "refs/heads/main", SeenDigest: seen, Want: render.Want{Options: render.Options{ReleaseName: "web", Helm: &render.HelmOptions{ValuesFrom: []render.InputID{"Secret/s/k"}}}}}
		w.Inputs = render.Inputs{"Secret/s/k": []byte("a: " + value)}
		return mustFetch(t, Request{Type: TypeGit, URL: url, Wants: []Want{w}})[0]
	}
	first := fetch("hush", "")
	if len(first.Objects) != 1 || first.Objects[0].Fields["data"].(map[string]any)["a"] != "hush" || strings.Contains(first.Digest, "hush") {
		t.Fatalf("%+v", first)
	}
	if got := first.Objects[0].Generated; len(got) != 1 || got[0] != "/data/b" {
		t.Errorf("noted: %q", got)
	}
	if same := fetch("hush", first.Digest); !same.Unchanged {
		t.Errorf("the same values: %+v", same)
	}
	if other := fetch("other", first.Digest); other.Unchanged || len(other.Objects) != 1 || other.Objects[0].Fields["data"].(map[string]any)["a"] != "other" {
		t.Errorf("other values: %+v", other)
	}
}

// A chart that exceeds its bounds, or fails, leaves the other Sources of the repository theirs.
func TestABadChartIsItsOwnFailure(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{
		"bomb/Chart.yaml": chartFile, "bomb/templates/a.yaml": `{{ repeat 2000000000 "x" }}`, "bad/Chart.yaml": chartFile, "bad/templates/a.yaml": "{{ fail \"no\" }}",
		"random/Chart.yaml": chartFile, "random/templates/a.yaml": configMap + "data: {a: {{ randAlpha 9 }}}\n", "good/a.yaml": configMap,
	})
	var wants []Want
	for _, dir := range []string{"bomb", "bad", "random", "good"} {
		wants = append(wants, Want{ID: dir, Ref: "refs/heads/main", Want: render.Want{Paths: []string{dir}, Options: render.Options{ReleaseName: "web"}}})
	}
	got := mustFetch(t, Request{Type: TypeGit, URL: r.serve(t), Wants: wants})
	for i, want := range []string{"failure " + string(atoll.ReasonContentTooLarge), "problem bad/templates/a.yaml", "random/templates/a.yaml:1", "good/a.yaml:1"} {
		if describe(got[i]) != want || got[i].Commit == "" || got[i].Digest == "" {
			t.Errorf("%s: %s, want %s", wants[i].ID, describe(got[i]), want)
		}
	}
}

// A build that is not the first one ends with the time of all builds, and is left to the next child.
func TestALaterBuildEndsInTime(t *testing.T) {
	run := func(building time.Duration, program ...string) (*contentReader, error) {
		f := &contentReader{builds: renderchild.Runner{Executable: program}, building: building}
		_, err := f.runJob(t.Context(), render.Job{})
		return f, err
	}
	if _, err := run(buildTime-100*time.Millisecond, "/bin/sleep", "600"); !errors.Is(err, errBuildsTooLong) {
		t.Errorf("a long build: %v", err)
	}
	if _, err := run(2*buildTime, "/bin/true"); !errors.Is(err, errBuildsTooLong) {
		t.Errorf("a build without time left: %v", err)
	}
	var failure *render.Failure
	f, err := run(0, "/bin/true")
	if !errors.As(err, &failure) || failure.Reason != atoll.ReasonBuildFailed || f.building == 0 {
		t.Errorf("the first build: %v, %s", err, f.building)
	}
}
