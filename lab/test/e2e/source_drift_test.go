package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

// An edit and a deletion on the hub are reported with their fields and managers. Corrections bring back what the commit has, in members,
// too. The number of replicas that a person scaled stays.
func TestSourceFindsAndCorrectsDrift(t *testing.T) {
	ns := createNamespace(t, "drift-of-sources")
	g := newGitServer(t)
	g.commit(t, "the shop opens", map[string]string{"deploy/web.yaml": webText("nginx:1"), "deploy/old.yaml": oldSettings})
	runCLI(t, "source", "create", "git", g.URL+"/shop.git", "--name", "shop", "-n", ns, "--path", "deploy", "--clusters", "region in (eu,us)", "--yes")
	testwait.UntilNil(t, "the commit runs in the chosen members", allChecks(
		existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old", "member1", "member2")))
	shows := func(what string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := runCLI(t, "source", "get", "shop", "-n", ns)
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("no %q in:\n%s", w, out)
				}
			}
			return nil
		})
	}
	shows("nothing differs", "InSync: True")

	mustKubectl(t, "", "scale deployment web --replicas 5 -n "+ns)
	mustKubectl(t, "", "set image deployment/web web=nginx:9 -n "+ns)
	mustKubectl(t, "", "delete configmap old -n "+ns)
	shows("the changes are reported", "InSync: False, ChangedOnHub", "waits for ChangedOnHub",
		"Deployment "+ns+" web since", "/spec/template/spec/containers/name=web/image by kubectl-set", "ConfigMap "+ns+" old since", ": deleted")
	if out := runCLI(t, "source", "get", "shop", "-n", ns); strings.Contains(out, "/spec/replicas") {
		t.Errorf("a scale is drift:\n%s", out)
	}

	mustKubectl(t, "", `patch source shop -n `+ns+` --type merge -p {"spec":{"drift":{"mode":"Correct"}}}`)
	testwait.UntilNil(t, "the members have what the commit has", allChecks(
		existsIn("v1", "ConfigMap", ns, "old", "member1", "member2"), imageIn("member1", ns, "nginx:1"), imageIn("member2", ns, "nginx:1")))
	shows("nothing differs any more", "InSync: True", "2 applied")
	web, err := get(t.Context(), "hub", "apps/v1", "Deployment", ns, "web")
	if err != nil || web == nil {
		t.Fatal(web, err)
	}
	if n, _, _ := unstructured.NestedInt64(web.Object, "spec", "replicas"); n != 5 {
		t.Errorf("the scaled Deployment has %d replicas on the hub", n)
	}
	events := mustKubectl(t, "", "get events -n "+ns+" --field-selector involvedObject.name=shop,reason=DriftCorrected -o jsonpath={.items[*].message}")
	expectOutput(t, "the Event of the correction", events, "the Source applied it again")
}
