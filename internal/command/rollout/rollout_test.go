package rollout_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

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
			bundles := map[string][]map[string]string{"web": {{"namespace": "shop", "name": "web"}}, "new": {{"namespace": "shop", "name": "web"}}, "mended": {{"namespace": "shop", "name": "web"}}, "roles": {{"name": "roles"}}, "both": {{"name": "a"}, {"name": "b"}}}
			_ = json.NewEncoder(w).Encode(map[string]any{"bundles": bundles[r.URL.Query().Get("name")]})
		case r.URL.Query().Get("watch") != "":
			serveChanges(h, w, r)
		default:
			h.ServeHTTP(w, r)
		}
	})
	return clienttest.RunForOutput(t, handler, rollout.NewCommand, args...)
}

// serveChanges answers a watch of a Bundle with its object "later", where there is one, and then with nothing more.
func serveChanges(h *clienttest.FakeHub, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if later := h.Object(web + "-later"); later != nil && strings.HasSuffix(r.URL.Query().Get("fieldSelector"), "=web") {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": later})
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
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
		"bundle/plain -n shop":       "bundle/plain states no rollout, and no cluster waits: by default a change keeps maxUnavailable 25% of more than 4 clusters\n",
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

// waitingSpec is paused, resumed, and approved by one user: enough for stage one, too few for stage two, and too long ago for
// stage three.
const waitingSpec = "{pause: {by: alice}, resume: {at: \"2026-11-22T12:00:00Z\"}, rollout: {stages: [{name: one, clusters: {names: [a]}, gatesAfter: [{name: owner, approval: {}}]}, {name: two, clusters: {names: [b]}, gatesBefore: [{name: owner, approval: {approvers: 2}}]}, {name: three, clusters: {names: [c]}, gatesBefore: [{name: owner, approval: {validFor: 1h}}]}]}, " +
	"approvals: [{stage: one, revision: r2, by: bob, at: \"2026-11-22T11:00:00Z\"}, {stage: two, revision: r2, by: bob, at: \"2026-11-22T11:00:00Z\"}, {stage: two, revision: r1, by: eve}, {stage: three, revision: r2, by: bob, at: \"2001-01-01T00:00:00Z\"}]}"

// bundleIn returns a hub with a Bundle whose rollout has a status, and the status that follows it.
func bundleIn(t *testing.T, rollout, later string) *clienttest.FakeHub {
	const stages = "stages: [{name: canary, clusters: 2, updated: 2, changing: 0, failed: 0, waiting: 0, disconnected: 0}, {name: rest, clusters: 4, updated: 1, changing: 1, failed: 0, waiting: 2, disconnected: 1}]"
	objects := map[string]string{
		web:                                    "{kind: Bundle, apiVersion: atoll.dev/v1alpha1, metadata: {name: web, uid: b-web}, spec: " + waitingSpec + ", status: {rollout: {" + rollout + stages + "}}}",
		"apps/namespaces/shop/deployments/web": "{metadata: {generation: 3}, status: {observedGeneration: 3}}",
		"apps/namespaces/shop/deployments/new": "{metadata: {generation: 4}, status: {observedGeneration: 3}}",
		"apps/namespaces/shop/deployments/mended": "{metadata: {generation: 3, managedFields: [{manager: kubectl, operation: Apply, time: \"2026-11-22T12:00:00Z\"}, {manager: atoll, operation: Update, subresource: status, time: \"2026-11-22T15:00:00Z\"}]}, status: {observedGeneration: 3}}",
	}
	if later != "" {
		objects[web+"-later"] = strings.ReplaceAll(objects[web], rollout+stages, later+stages)
	}
	return clienttest.NewFakeHub(t, objects)
}

// Each end of a rollout has an exit code. A rollout under way is followed, and a template that clusters have not observed is not done.
func TestWaitForARollout(t *testing.T) {
	const underway = "currentStage: rest, reason: WaitsForStage, message: stage rest to become healthy, "
	for name, c := range map[string]struct {
		rollout, later, object string
		code                   int
		out, message           string
	}{
		"done":                {"", "", "bundle/web", 0, "canary 2/2, rest 1/4 (1 changing) (1 disconnected)\n", ""},
		"failed":              {"currentStage: canary, reason: StageFailed, message: stage canary, ", "", "bundle/web", 3, "; StageFailed: stage canary\n", "bundle/web failed: StageFailed: stage canary"},
		"a gate failed":       {"currentStage: canary, reason: GateFailed, message: another template, ", "", "bundle/web", 3, "; GateFailed: another template\n", "bundle/web failed: GateFailed: another template"},
		"its gate is resumed": {"currentStage: canary, reason: GateFailed, message: another template, since: \"2026-11-22T11:00:00Z\", ", "", "bundle/web", 5, "; GateFailed: another template\n", "bundle/web is not done within"},
		"a person":            {"currentStage: canary, reason: WaitsForApproval, message: a gate, ", "", "bundle/web", 4, "; WaitsForApproval: a gate\n", "a person that may approve the rollout must act"},
		"approved by too few": {"currentStage: canary, reason: WaitsForApproval, message: a gate, gates: [{stage: two, name: owner, revision: r2, state: Waiting}], ", "", "bundle/web", 4, "; WaitsForApproval: a gate\n", "waits for a person"},
		"approved long ago":   {"currentStage: canary, reason: WaitsForApproval, message: a gate, gates: [{stage: three, name: owner, revision: r2, state: Waiting}], ", "", "bundle/web", 4, "; WaitsForApproval: a gate\n", "waits for a person"},
		"approved already":    {"currentStage: canary, reason: WaitsForApproval, message: a gate, gates: [{stage: one, name: owner, revision: r2, state: Waiting}], ", "", "bundle/web", 5, "; WaitsForApproval: a gate\n", "bundle/web is not done within"},
		"passed already":      {"currentStage: canary, reason: WaitsForApproval, message: a gate, gates: [{stage: two, name: owner, revision: r2, state: Passed}], ", "", "bundle/web", 5, "; WaitsForApproval: a gate\n", "bundle/web is not done within"},
		"resumed already":     {"currentStage: canary, reason: StageFailed, message: stage canary, since: \"2026-11-22T11:00:00Z\", ", "", "bundle/web", 5, "; StageFailed: stage canary\n", "bundle/web is not done within"},
		"failed again":        {"currentStage: canary, reason: StageFailed, message: stage canary, since: \"2026-11-22T13:00:00Z\", ", "", "bundle/web", 3, "; StageFailed: stage canary\n", "bundle/web failed"},
		"mended already":      {"currentStage: rest, reason: TooManyUnhealthy, message: a, since: \"2026-11-22T11:00:00Z\", ", "", "deployment/mended", 5, "; TooManyUnhealthy: a\n", "deployment/mended is not done within"},
		"the mend helps":      {"currentStage: rest, reason: TooManyUnhealthy, message: a, since: \"2026-11-22T11:00:00Z\", ", "currentStage: \"\", ", "deployment/mended", 0, "; TooManyUnhealthy: a\ncanary 2/2", ""},
		"the mend fails":      {"currentStage: rest, reason: TooManyUnhealthy, message: a, since: \"2026-11-22T13:00:00Z\", ", "", "deployment/mended", 3, "; TooManyUnhealthy: a\n", "deployment/mended failed: TooManyUnhealthy"},
		"paused":              {"currentStage: canary, reason: RolloutPaused, message: lunch, pausedBy: alice, ", "", "bundle/web", 4, "; RolloutPaused: lunch\n", "waits for a person"},
		"done later":          {underway, "currentStage: \"\", ", "deployment/web", 0, "; WaitsForStage: stage rest to become healthy\ncanary 2/2, rest 1/4 (1 changing) (1 disconnected)\n", ""},
		"under way":           {underway, "", "bundle/web", 5, "; WaitsForStage: ", "bundle/web is not done within"},
		"not observed yet":    {"", "", "deployment/new", 5, "canary 2/2", "deployment/new is not done within"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"status", c.object, "-n", "shop", "--wait"}
			if c.code == 5 {
				args = append(args, "--timeout", "100ms")
			}
			out, err := run(t, bundleIn(t, c.rollout, c.later), args...)
			code := 0
			var exit utilexec.CodeExitError
			if errors.As(err, &exit) {
				code = exit.Code
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(fmt.Sprint(err), c.message) {
				t.Errorf("exit code %d with %v, want %d\n%s\nwant\n%s", code, err, c.code, out, c.out)
			}
		})
	}
}

// An approval is of the present revision, and of the stage that waits for it. It keeps the approvals of others.
func TestApproveAStage(t *testing.T) {
	hub := func() *clienttest.FakeHub {
		gate := func(stage string) string {
			return "{stage: " + stage + ", name: owner, revision: web-r2, hash: x, state: Waiting, since: \"2026-11-22T12:00:00Z\", value: 0 of 1 approval}"
		}
		stage := func(name string) string {
			return "{name: " + name + ", clusters: {names: [a]}, gatesBefore: [{name: owner, approval: {}}]}"
		}
		return clienttest.NewFakeHub(t, map[string]string{
			web:    "{metadata: {uid: b-web, resourceVersion: \"7\"}, spec: {rollout: {stages: [" + stage("a") + ", " + stage("b") + "]}, approvals: [{stage: b, revision: web-r2, by: bob, at: \"2026-11-22T12:00:00Z\"}]}, status: {revision: web-r2, rollout: {gates: [" + gate("a") + "]}}}",
			plain:  "{metadata: {uid: b-plain}, spec: {rollout: {stages: [" + stage("a") + ", " + stage("b") + "]}}, status: {revision: web-r2, rollout: {gates: [" + gate("a") + ", " + gate("b") + "]}}}",
			paused: "{metadata: {uid: b-roles}}",
		})
	}
	for args, want := range map[string]string{
		"bundle/web":                   "a by , b by bob",
		"bundle/web --stage b":         "b by , b by bob",
		"bundle/web --revision web-r2": "a by , b by bob",
		"bundle/web --revision web-r1": "it is at revision web-r2, and not at web-r1",
		"bundle/plain":                 "stages a, b wait for an approval: name one with --stage",
		"clusterbundle/roles":          "it has no revision yet",
	} {
		h := hub()
		out, err := run(t, h, append([]string{"approve", "-n", "shop"}, strings.Fields(args)...)...)
		got := fmt.Sprint(err)
		if err == nil {
			var list []string
			approvals, _ := h.Object(web)["spec"].(map[string]any)["approvals"].([]any)
			for _, one := range approvals {
				a := one.(map[string]any)
				by, _ := a["by"].(string)
				list = append(list, fmt.Sprint(a["stage"], " by ", by))
			}
			slices.Sort(list)
			if got = strings.Join(list, ", "); !strings.Contains(out, "revision web-r2 of bundle/web is approved for stage ") {
				t.Errorf("%s: %s", args, out)
			}
			h.ExpectWrites(t, "patch "+web)
		} else {
			h.ExpectWrites(t)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	out, err := run(t, hub(), "status", "bundle/web", "-n", "shop")
	if want := "gate owner of stage a: Waiting since 2026-11-22T12:00:00Z (0 of 1 approval)\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
