package rollout_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/rollout"
)

const (
	web    = "atoll.dev/namespaces/shop/bundles/web"
	plain  = "atoll.dev/namespaces/shop/bundles/plain"
	paused = "atoll.dev/clusterbundles/roles"
)

var kinds = []metav1.APIResourceList{
	{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "bundles", SingularName: "bundle", Kind: "Bundle", Namespaced: true}, {Name: "clusterbundles", SingularName: "clusterbundle", Kind: "ClusterBundle"},
	}},
	{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true}}},
}

func run(t *testing.T, h *clienttest.FakeHub, args ...string) (out string, err error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case clienttest.ServeDiscovery(w, r, kinds...):
		case r.URL.Path == atoll.ExplainPath:
			bundles := map[string][]map[string]string{"web": {{"namespace": "shop", "name": "web"}}, "roles": {{"name": "roles"}}, "both": {{"name": "a"}, {"name": "b"}}}
			_ = json.NewEncoder(w).Encode(map[string]any{"bundles": bundles[r.URL.Query().Get("name")]})
		default:
			h.ServeHTTP(w, r)
		}
	})
	return clienttest.RunForOutput(t, handler, rollout.NewCommand, args...)
}

func newHub(t *testing.T) *clienttest.FakeHub {
	return clienttest.NewFakeHub(t, map[string]string{
		plain: "{metadata: {uid: b-plain}}",
		web: `{metadata: {uid: b-web}, status: {rollout: {currentStage: canary, reason: StageFailed, actor: the application's owner, message: "stage canary, in which 1 cluster failed",
 stages: [{name: canary, clusters: 3, updated: 1, changing: 1, failed: 1, waiting: 0, disconnected: 2}, {name: rest, clusters: 9, updated: 0, changing: 0, failed: 0, waiting: 9, disconnected: 0}]}}}`,
		paused: `{metadata: {uid: b-roles}, status: {rollout: {pausedBy: alice, pausedSince: "2026-11-22T12:00:00Z", stages: [{name: rest, clusters: 1, updated: 1, changing: 0, failed: 0, waiting: 0, disconnected: 0}]}}}`,
	})
}

// Status shows the stages with their counts, and for what the others wait. A template stands for its Bundle.
func TestStatusOfARollout(t *testing.T) {
	const table = `STAGE     CLUSTERS  UPDATED  CHANGING  FAILED  WAITING  DISCONNECTED
canary *  3         1        1         1       0        2
rest      9         0        0         0       9        0
StageFailed: clusters wait for stage canary, in which 1 cluster failed; the application's owner must act
`
	for args, want := range map[string]string{
		"bundle/web -n shop":         table,
		"deployment/web -n shop":     table,
		"bundle/plain -n shop":       "bundle/plain states no rollout, and is not paused: a change reaches all clusters at once\n",
		"clusterbundle/roles":        "paused by alice since 2026-11-22T12:00:00Z\n",
		"deployment/roles -n shop":   "paused by alice",
		"bundle/web -n shop -o json": `"currentStage": "canary"`,
	} {
		h := newHub(t)
		out, err := run(t, h, append([]string{"status"}, strings.Fields(args)...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", args, err, out, want)
		}
		h.ExpectWrites(t)
	}
	for args, want := range map[string]string{"deployment/both": "is in 2 Bundles", "deployment/none": "is in 0 Bundles", "bundle/gone": "gone", "web": "KIND/NAME"} {
		if out, err := run(t, newHub(t), "status", args, "-n", "shop"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", args, err, want, out)
		}
	}
}

// Pause and resume write the fields of the Bundle, and nothing else.
func TestPauseAndResume(t *testing.T) {
	h := newHub(t)
	spec := func() map[string]any {
		out, _ := h.Object(web)["spec"].(map[string]any)
		return out
	}
	if out, err := run(t, h, "pause", "deployment/web", "-n", "shop", "--message", "lunch"); err != nil || !strings.Contains(out, "the rollout of deployment/web is paused") {
		t.Fatalf("pause: %v\n%s", err, out)
	}
	if got, _ := json.Marshal(spec()); string(got) != `{"pause":{"message":"lunch"}}` {
		t.Errorf("the spec is %s", got)
	}
	if out, err := run(t, h, "pause", "deployment/web", "-n", "shop", "--reason", "Lunch"); err != nil {
		t.Fatalf("pause again: %v\n%s", err, out)
	}
	if got, _ := json.Marshal(spec()); string(got) != `{"pause":{"reason":"Lunch"}}` {
		t.Errorf("after another pause the spec is %s", got)
	}
	if out, err := run(t, h, "resume", "bundle/web", "-n", "shop"); err != nil || !strings.Contains(out, "is resumed") {
		t.Fatalf("resume: %v\n%s", err, out)
	}
	if resume, _ := spec()["resume"].(map[string]any); spec()["pause"] != nil || resume["at"] == nil || len(spec()) > 2 {
		t.Errorf("the spec is %v", spec())
	}
	h.ExpectWrites(t, "patch "+web, "patch "+web, "patch "+web)
}
