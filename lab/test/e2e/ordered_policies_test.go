package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// orderedApplication is a Deployment with its policy, which may depend on others.
func orderedApplication(name, readyAfter, dependsOn string) string {
	return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %[1]s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: %[1]s}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
%[3]s---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: $NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {lab.atoll.dev/ready-after: %[2]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: %[1]s, image: "registry.example/web:1"}]}
---
`, name, readyAfter, dependsOn)
}

// TestApplicationsComeAndGoInOrder checks that an application waits for another one, at its first installation and at a change. Status, explain and plan
// show it, a circle is refused, and both leave each member in reverse order.
func TestApplicationsComeAndGoInOrder(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "in-order")
	exists := func(name string, members ...string) func(ctx context.Context) error {
		return existsIn("apps/v1", "Deployment", ns, name, members...)
	}
	web := orderedApplication("web", "1s", "  dependsOn: [{name: db}]\n")
	apply(t, ns, web)
	testwait.UntilNil(t, "the dependency is missing", rolloutShows(t, ns, "^DependencyMissing: clusters wait for PropagationPolicy db, which places nothing, or an edit of dependsOn; the application's owner must act$"))
	apply(t, ns, orderedApplication("db", "1h", ""))
	testwait.UntilNil(t, "the dependency is applied", exists("db", "member1", "member2"))
	testwait.UntilNil(t, "explain says why", explanationMatches("deployment/web -n "+ns, "(?s)member1.{0,200}waits for PropagationPolicy db to be ready in the same cluster"))
	if err := exists("web")(t.Context()); err != nil {
		t.Errorf("it comes before its dependency is ready: %v", err)
	}
	setImageOf(t, ns, "db", "registry.example/web:1", "1s")
	testwait.UntilNil(t, "it comes after its dependency", exists("web", "member1", "member2"))

	var policy unstructured.Unstructured
	policy.SetAPIVersion("atoll.dev/v1alpha1")
	policy.SetKind("PropagationPolicy")
	policy.SetNamespace(ns)
	policy.SetName("db")
	err := hubClient().Patch(t.Context(), &policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"dependsOn":[{"name":"web"}]}}`)))
	if err == nil || !strings.Contains(err.Error(), "spec.dependsOn[0]: Forbidden: the policies would depend on each other: PropagationPolicy db on PropagationPolicy web on PropagationPolicy db") {
		t.Errorf("a circle is refused with %v", err)
	}

	const before, after = "registry.example/web:1", "registry.example/web:2"
	setImageOf(t, ns, "db", after, "1h")
	testwait.UntilNil(t, "the dependency changes", func(ctx context.Context) error {
		for _, m := range []string{"member1", "member2"} {
			o, err := get(ctx, m, "apps/v1", "Deployment", ns, "db")
			if err != nil || o == nil || !strings.Contains(fmt.Sprint(o.Object["spec"]), after) {
				return fmt.Errorf("%s: %v (%w)", m, o, errors.Join(err, errors.New("db has not changed")))
			}
		}
		return nil
	})
	edited := writeManifest(t, "web.yaml", ns, strings.Replace(web, before, after, 1))
	testwait.UntilNil(t, "the plan says why", func(context.Context) error {
		if out := runCLI(t, "plan", "-f", edited); !strings.Contains(out, "would wait for PropagationPolicy db to be ready in the same cluster") {
			return errors.New(out)
		}
		return nil
	})
	setImageOf(t, ns, "web", after, "1s")
	testwait.UntilNil(t, "the change waits", rolloutShows(t, ns, "^WaitsForDependency: clusters wait for PropagationPolicy db to be ready in the same cluster; Atoll must act$"))
	if err := allChecks(imageIn("member1", ns, before), imageIn("member2", ns, before))(t.Context()); err != nil {
		t.Errorf("it changes before its dependency: %v", err)
	}
	setImageOf(t, ns, "db", after, "1s")
	testwait.UntilNil(t, "it changes after its dependency", allChecks(imageIn("member1", ns, after), imageIn("member2", ns, after)))
	testwait.UntilNil(t, "it is ready", allChecks(fieldIs("member1", ns, "web", "status.readyReplicas", 1), fieldIs("member2", ns, "web", "status.readyReplicas", 1)))

	patchInMember(t, "member1", "patch deployment web -n "+ns+` --type=merge -p {"metadata":{"finalizers":["test.atoll.dev/stays"]}}`)
	remove(t, "apps/v1", "Deployment", ns, "db")
	remove(t, "apps/v1", "Deployment", ns, "web")
	testwait.UntilNil(t, "both leave one member, and the other keeps what is needed", allChecks(exists("web", "member1"), exists("db", "member1")))
	testwait.UntilNil(t, "the status says what leaves first", func(context.Context) error {
		const want = "WaitsForDependents: clusters wait for PropagationPolicy web to leave the cluster first"
		if out := runCLI(t, "rollout", "status", "deployment/db", "-n", ns); !strings.Contains(out, want) {
			return errors.New(out)
		}
		return nil
	})
	patchInMember(t, "member1", "patch deployment web -n "+ns+` --type=merge -p {"metadata":{"finalizers":null}}`)
	testwait.UntilNil(t, "all is gone", allChecks(exists("web"), exists("db")))
}
