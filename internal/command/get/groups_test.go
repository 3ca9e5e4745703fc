package get

import (
	"net/http"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
)

// countingHub answers with counts, and keeps the question.
func countingHub(question *string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != atoll.FleetCountsPath {
			http.NotFound(w, r)
			return
		}
		*question = r.URL.Query().Encode()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"by":"region","all":9,"matching":7,"states":{"Away":1,"Ready":6},"groups":[{"value":"","clusters":1,"states":{"Ready":1}},{"value":"eu","clusters":4,"states":{"Away":1,"Ready":3}}],"moreGroups":2,"moreClusters":2}`))
	})
}

func TestClustersAreCountedByGroup(t *testing.T) {
	var question string
	out, err := clienttest.RunForOutput(t, countingHub(&question), NewCommand, "clusters", "--group-by", "region", "-l", "tier=edge")
	if err != nil || !strings.HasPrefix(question, "by=region&labelSelector=tier%3Dedge&limit=1000") {
		t.Fatalf("%v, the question is %q", err, question)
	}
	var got []string
	for line := range strings.Lines(out) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"REGION CLUSTERS NOTREADY AWAY JOINING REMOVING UNKNOWN READY",
		"(no value) 1 0 0 0 0 0 1",
		"eu 4 0 1 0 0 0 3",
		"(2 more) 2",
		"(all) 7 0 1 0 0 0 6",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", out)
	}
	if out, err = clienttest.RunForOutput(t, countingHub(&question), NewCommand, "clusters", "--group-by", "region", "-o", "json"); err != nil || !strings.Contains(out, `"moreClusters": 2`) {
		t.Errorf("%v %s", err, out)
	}
	for _, args := range [][]string{{"oslo"}, {"-o", "wide"}} {
		if out, err := clienttest.RunForOutput(t, countingHub(&question), NewCommand, append([]string{"clusters", "--group-by", "region"}, args...)...); err == nil {
			t.Errorf("%q: %s", args, out)
		}
	}
}
