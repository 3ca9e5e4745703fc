package drain_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilexec "k8s.io/client-go/util/exec"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/drain"
)

const oslo = "atoll.dev/clusters/oslo"

var kinds = []metav1.APIResourceList{{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "clusters", SingularName: "cluster", Kind: "Cluster"}}}}

func run(t *testing.T, h *clienttest.FakeHub, args ...string) (string, error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clienttest.ServeDiscovery(w, r, kinds...) {
			h.ServeHTTP(w, r)
		}
	})
	command := drain.NewCommand
	if args[0] == "uncordon" {
		command = drain.NewUncordonCommand
	}
	return clienttest.RunForOutput(t, handler, command, args[1:]...)
}

// newHub returns a hub with a cluster that has taints, in JSON, and the condition Draining, if any.
func newHub(t *testing.T, taints, draining string) *clienttest.FakeHub {
	t.Helper()
	status := "{}"
	if draining != "" {
		status = "{conditions: [{type: Draining, " + draining + "}]}"
	}
	return clienttest.NewFakeHub(t, map[string]string{oslo: "{metadata: {uid: c-oslo, resourceVersion: \"7\", generation: 3}, spec: {accepted: true, taints: " + taints + "}, status: " + status + "}"})
}

// taintsOf returns the taints of the cluster, as KEY=VALUE:EFFECT.
func taintsOf(h *clienttest.FakeHub) string {
	spec, _ := h.Object(oslo)["spec"].(map[string]any)
	list, _ := spec["taints"].([]any)
	var out []string
	for _, one := range list {
		taint, _ := one.(map[string]any)
		value, _ := taint["value"].(string)
		out = append(out, taint["key"].(string)+"="+value+":"+taint["effect"].(string))
	}
	return strings.Join(out, " ")
}

const (
	noTaints  = "[]"
	own       = "{key: own, effect: NoSchedule}"
	cordon    = "{key: node.kubernetes.io/unschedulable, effect: NoSchedule}"
	draining  = "{key: atoll.dev/drain, effect: NoExecute}"
	removing  = "{key: atoll.dev/drain, value: RemoveUnreplaced, effect: NoExecute}"
	patchOslo = "patch " + oslo
)

// A drain adds its taint and leaves the others. It writes nothing where the taint is there.
func TestADrainIsATaint(t *testing.T) {
	for name, tc := range map[string]struct{ taints, args, want, write string }{
		"none":             {noTaints, "", "atoll.dev/drain=:NoExecute", patchOslo},
		"beside others":    {"[" + own + ", " + cordon + "]", "", "own=:NoSchedule node.kubernetes.io/unschedulable=:NoSchedule atoll.dev/drain=:NoExecute", patchOslo},
		"drained already":  {"[" + draining + "]", "", "atoll.dev/drain=:NoExecute", ""},
		"also unreplaced":  {"[" + draining + "]", "--remove-unreplaced", "atoll.dev/drain=RemoveUnreplaced:NoExecute", patchOslo},
		"of replaced only": {"[" + removing + "]", "", "atoll.dev/drain=:NoExecute", patchOslo},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, tc.taints, "")
			out, err := run(t, h, append([]string{"drain", "oslo", "--no-wait"}, strings.Fields(tc.args)...)...)
			if err != nil || !strings.Contains(out, "atoll drain oslo") {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := taintsOf(h); got != tc.want {
				t.Errorf("the taints are %s, want %s", got, tc.want)
			}
			if tc.write == "" {
				h.ExpectWrites(t)
			} else {
				h.ExpectWrites(t, tc.write)
			}
		})
	}
}

// An uncordon takes the taints of drains and cordons away, and no other.
func TestAnUncordonEndsDrainAndCordon(t *testing.T) {
	h := newHub(t, "["+own+", "+cordon+", "+removing+"]", "")
	if out, err := run(t, h, "uncordon", "oslo"); err != nil || out != "cluster oslo takes work again\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := taintsOf(h); got != "own=:NoSchedule" {
		t.Errorf("the taints are %s", got)
	}
	if out, err := run(t, h, "uncordon", "oslo"); err != nil || out != "cluster oslo is neither drained nor cordoned\n" {
		t.Fatalf("%v\n%s", err, out)
	}
	h.ExpectWrites(t, patchOslo)
}

// The exit code shows what a drain ended by, or waits for. A report of an earlier generation shows nothing.
func TestADrainEndsWithItsCode(t *testing.T) {
	for name, tc := range map[string]struct {
		draining string
		code     int
		want     string
	}{
		"done":             {"status: \"False\", reason: Drained, message: 3 of 3 bundles left, observedGeneration: 3", 0, "Drained: 3 of 3 bundles left"},
		"cannot leave":     {"status: \"True\", reason: CannotLeave, message: 1 cannot leave, observedGeneration: 3", 3, "CannotLeave: 1 cannot leave"},
		"waits for people": {"status: \"True\", reason: WaitsForConfirmation, message: 2 wait, observedGeneration: 3", 4, "WaitsForConfirmation: 2 wait"},
		"the hub holds":    {"status: \"True\", reason: HubHolds, message: set back, observedGeneration: 3", 4, "HubHolds: set back"},
		"goes on":          {"status: \"True\", reason: BundlesLeave, message: 1 of 3 bundles left, observedGeneration: 3", 5, "BundlesLeave: 1 of 3 bundles left"},
		"of an older edit": {"status: \"False\", reason: Drained, message: of the last drain, observedGeneration: 2", 5, ""},
		"hostile text":     {"status: \"False\", reason: Drained, message: \"a\\u001b[31mb\", observedGeneration: 3", 0, "Drained: a\\x1b[31mb"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, "["+draining+"]", tc.draining)
			args := []string{"drain", "oslo"}
			if tc.code == 5 {
				args = append(args, "--timeout", "1ms")
			}
			out, err := run(t, h, args...)
			var exit utilexec.CodeExitError
			if code := 0; errors.As(err, &exit) || err == nil {
				if code = exit.Code; code != tc.code {
					t.Errorf("exit code %d with %v, want %d", code, err, tc.code)
				}
			} else {
				t.Errorf("no exit code: %v", err)
			}
			if !strings.Contains(out, tc.want) || tc.want == "" && out != "" {
				t.Errorf("the output is %q, want %q", out, tc.want)
			}
			h.ExpectWrites(t)
		})
	}
}

// A drain that a person ended, or a cluster that is removed, ends the command with its reason.
func TestADrainThatIsEndedElsewhere(t *testing.T) {
	for name, want := range map[string]string{"uncordon": "ended by a person", "remove": "is being removed"} {
		h := newHub(t, "["+draining+"]", "")
		reads := 0
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if clienttest.ServeDiscovery(w, r, kinds...) {
				return
			}
			if reads++; reads == 3 { // the first two are of the command's edit
				http.Error(w, "a hub that restarts", http.StatusInternalServerError)
				return
			}
			if reads == 4 {
				http.NotFound(w, r) // the hub does not serve its kinds yet
				return
			}
			if reads > 4 {
				spec, _ := h.Object(oslo)["spec"].(map[string]any)
				delete(spec, "taints")
				if name == "remove" {
					spec["removal"] = map[string]any{}
				}
				object := h.Object(oslo)
				w.Header().Set("Content-Type", "application/json")
				object["apiVersion"], object["kind"], object["spec"] = "atoll.dev/v1alpha1", "Cluster", spec
				_ = json.NewEncoder(w).Encode(object)
				return
			}
			h.ServeHTTP(w, r)
		})
		if out, err := clienttest.RunForOutput(t, handler, drain.NewCommand, "oslo"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(out, "it is asked again: ") {
			t.Errorf("%s: %v, want %q\n%s", name, err, want, out)
		}
	}
}
