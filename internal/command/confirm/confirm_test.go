package confirm_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/confirm"
	"atoll.dev/atoll/internal/rowcodec"
)

const (
	web   = "atoll.dev/namespaces/shop/bundles/web"
	tokyo = "atoll.dev/clusters/tokyo"
	held  = "{metadata: {uid: u-tokyo}, spec: {removal: {mode: Clean}}, status: {removal: {plan: p1}}}"
)

var kinds = metav1.APIResourceList{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{
	{Name: "bundles", SingularName: "bundle", Kind: "Bundle", Namespaced: true}, {Name: "clusters", SingularName: "cluster", Kind: "Cluster"},
	{Name: "placements", SingularName: "placement", Kind: "Placement", Namespaced: true},
}}

// newHub returns a hub with Cluster tokyo, and Bundle shop/web, whose row there holds plan p1.
func newHub(t *testing.T, cluster string) *clienttest.FakeHub {
	t.Helper()
	slice := &enginev1.TargetSlice{}
	slice.Spec.Bundle = enginev1.BundleRef{UID: "b-web", Namespace: "shop", Name: "web"}
	spec := atoll.RowSpec{UID: "u-tokyo", Generation: 1, Revision: "r1", Phase: atoll.RowActive, Reason: "RemovalHeld plan=p1: PlacementEdited"}
	slice.Spec.Rows = rowcodec.JoinLines([]rowcodec.Line{{Cluster: "tokyo", Text: rowcodec.EncodeSpec(spec, nil)}})
	text, err := json.Marshal(slice)
	if err != nil {
		t.Fatal(err)
	}
	return clienttest.NewFakeHub(t, map[string]string{
		web: "{metadata: {uid: b-web}}", tokyo: cluster, "engine.atoll.dev/namespaces/atoll-system/targetslices/b-web-0": string(text),
	})
}

func run(t *testing.T, h *clienttest.FakeHub, args ...string) (out string, err error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clienttest.ServeDiscovery(w, r, kinds) {
			h.ServeHTTP(w, r)
		}
	})
	return clienttest.RunForOutput(t, handler, confirm.NewCommand, args...)
}

// Only the plan that waits is released, and only when it is named.
func TestExactlyThePlanIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		cluster, args string
		prints, fails string
		writes        string
	}{
		"a Bundle's plan is shown":     {held, "bundle/web", "plan p1 waits:\n  tokyo: RemovalHeld: PlacementEdited\n", "", ""},
		"a Bundle's plan":              {held, "bundle/web --plan p1", "plan p1 is released", "", "patch " + web},
		"another plan of a Bundle":     {held, "bundle/web --plan p2", "", "does not wait for plan p2", ""},
		"a Bundle that is not there":   {held, "bundle/gone --plan p1", "", "gone", ""},
		"a Cluster's plan":             {held, "cluster/tokyo --plan p1", "plan p1 is released", "", "patch " + tokyo},
		"another plan of a Cluster":    {held, "cluster/tokyo --plan p2", "", "does not wait for plan p2", ""},
		"a Cluster that stays":         {"{status: {removal: {plan: p1}}}", "cluster/tokyo --plan p1", "", "holds no removal", ""},
		"a Cluster without a plan yet": {"{spec: {removal: {mode: Clean}}}", "cluster/tokyo", "", "nothing to confirm", ""},
		"something else":               {held, "placement/web", "", "removals are confirmed per Bundle", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, c.cluster)
			out, err := run(t, h, strings.Fields(c.args)...)
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) || !strings.Contains(out, c.prints) {
				t.Errorf("%v: %s", err, out)
			}
			if got := strings.Join(h.Writes(), " "); got != c.writes {
				t.Errorf("writes %q, want %q", got, c.writes)
			}
		})
	}
}

// A released plan is written where the hub looks for it, and waits no longer.
func TestAReleasedPlanIsWritten(t *testing.T) {
	h := newHub(t, held)
	if _, err := run(t, h, "bundle/web", "--plan", "p1"); err != nil {
		t.Fatal(err)
	}
	if got := h.Object(web)["metadata"].(map[string]any)["annotations"].(map[string]any)[atoll.AnnotationConfirm]; got != "p1" {
		t.Errorf("the annotation is %v", got)
	}
	if _, err := run(t, h, "bundle/web", "--plan", "p1"); err == nil || !strings.Contains(err.Error(), "nothing to confirm") {
		t.Errorf("released again: %v", err)
	}
	if _, err := run(t, h, "cluster/tokyo", "--plan", "p1"); err != nil {
		t.Fatal(err)
	}
	removal := h.Object(tokyo)["spec"].(map[string]any)["removal"].(map[string]any)
	if removal["confirm"] != "p1" || removal["mode"] != "Clean" {
		t.Errorf("the removal is %v", removal)
	}
	if want := []string{"patch " + web, "patch " + tokyo}; !slices.Equal(h.Writes(), want) {
		t.Errorf("writes %q, want %q", h.Writes(), want)
	}
}
