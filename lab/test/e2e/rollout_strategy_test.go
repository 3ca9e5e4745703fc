package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

const sharedStrategy = `
apiVersion: atoll.dev/v1alpha1
kind: RolloutStrategy
metadata: {name: careful, namespace: $NS}
spec:
  type: Staged
  stages:
  - name: canary
    clusters: {names: [member1]}
`

const enforcedStrategy = `
apiVersion: atoll.dev/v1alpha1
kind: ClusterRolloutStrategy
metadata: {name: first-$NS}
spec:
  type: Staged
  stages:
  - name: first
    clusters: {names: [member1]}
  enforcedFor: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}
`

// sharingPolicy is a policy of one Deployment that names the strategy.
func sharingPolicy(name string) string {
	return `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: ` + name + `, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: ` + name + `}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
  rolloutRef: {name: careful}
`
}

// imagesOf returns a check of the images of a Deployment in member1 and member2.
func imagesOf(ns, name, first, second string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for member, want := range map[string]string{"member1": first, "member2": second} {
			o, err := get(ctx, member, "apps/v1", "Deployment", ns, name)
			if err != nil || o == nil {
				return fmt.Errorf("%s: no Deployment %s (%v)", member, name, err)
			}
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if got := fmt.Sprint(containers[0].(map[string]any)["image"]); got != want {
				return fmt.Errorf("%s: the image of %s is %s, want %s", member, name, got, want)
			}
		}
		return nil
	}
}

// TestPoliciesShareARollout checks that two policies wait for the RolloutStrategy that their rolloutRef names by kind and name. Both go through
// its stages, and follow an edit of its spec. An enforced strategy holds them, and the user that deletes a strategy is warned.
func TestPoliciesShareARollout(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "strategies")
	const first, second, third = "registry.example/web:1", "registry.example/web:2", "registry.example/web:3"
	web := strings.Replace(slowDeployment, "replicas: 3", "replicas: 1", 1)
	api := strings.NewReplacer("{name: web, namespace", "{name: api, namespace", "app: web", "app: api", "{name: web, image", "{name: api, image").Replace(web)
	both := func(image1, image2 string) func(ctx context.Context) error {
		return allChecks(imagesOf(ns, "web", image1, image2), imagesOf(ns, "api", image1, image2))
	}
	apply(t, ns, sharingPolicy("web")+"---"+sharingPolicy("api")+"---"+web+"---"+api)
	testwait.UntilNil(t, "a new Bundle waits", explanationMatches("deployment/web -n "+ns, "RolloutStrategy careful, which rolloutRef names, does not exist"))
	apply(t, ns, sharedStrategy)
	testwait.UntilNil(t, "the first installation", both(first, first))
	testwait.UntilNil(t, "status names the strategy", rolloutShows(t, ns, `^the rollout is that of RolloutStrategy careful$`, `^canary +1 +1 `, `^complete: `))
	testwait.UntilNil(t, "explain names it", explanationMatches("deployment/api -n "+ns, `^  Its rollout is that of RolloutStrategy careful\.$`))
	testwait.UntilNil(t, "the strategy counts its policies", fieldShows([]string{"hub"}, objectName{"atoll.dev/v1alpha1", "RolloutStrategy", ns, "careful"}, "status.policies", "2"))

	setImageOf(t, ns, "web", second, "1h")
	setImageOf(t, ns, "api", second, "1h")
	testwait.UntilNil(t, "both are in the first stage", both(second, first))
	wide := strings.Replace(sharedStrategy, "canary\n    clusters: {names: [member1]}", "wide\n    clusters: {labelSelector: {}}", 1)
	plan := runCLI(t, "plan", "-f", writeManifest(t, "strategy.yaml", ns, wide))
	expectOutput(t, "the plan of the edit", plan, "(PropagationPolicy web)\n", "(PropagationPolicy api)\n", "Its rollout would change: stages canary (RolloutStrategy careful) -> stages wide (RolloutStrategy careful).")
	if err := both(second, first)(t.Context()); err != nil {
		t.Errorf("the second stage has begun: %v", err)
	}
	patch(t, "atoll.dev/v1alpha1", "RolloutStrategy", ns, "careful", `{"spec":{"type":"All","stages":null}}`)
	testwait.UntilNil(t, "the edit reaches both", both(second, second))

	t.Cleanup(func() {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("atoll.dev/v1alpha1")
		o.SetKind("ClusterRolloutStrategy")
		o.SetName("first-" + ns)
		_ = hubClient().Delete(context.WithoutCancel(t.Context()), o)
	})
	apply(t, ns, enforcedStrategy)
	testwait.UntilNil(t, "explain shows the enforcement", explanationMatches("deployment/api -n "+ns, "Its rollout is that of ClusterRolloutStrategy first-"+ns+", which is enforced for namespace "+ns))
	testwait.UntilNil(t, "status shows it", rolloutShows(t, ns, "^the rollout is that of ClusterRolloutStrategy first-"+ns+", which is enforced for namespace "+ns+"$"))
	setImageOf(t, ns, "web", third, "1h")
	testwait.UntilNil(t, "the enforced stage holds", allChecks(imagesOf(ns, "web", third, second), rolloutShows(t, ns, `^first \* +1 +0 +1 +0 +0 +0$`, `^rest +1 +0 +0 +0 +1 +0$`)))
	testwait.UntilNil(t, "the enforcement is counted", fieldShows([]string{"hub"}, objectName{"atoll.dev/v1alpha1", "ClusterRolloutStrategy", "", "first-" + ns}, "status.enforcedNamespaces", "1"))
	if err := imagesOf(ns, "web", third, second)(t.Context()); err != nil {
		t.Errorf("the second stage has begun: %v", err)
	}

	hub := sharedWorld.lab.KubeconfigPath("hub")
	expectOutput(t, "the deletion of a strategy that policies name", kubectlAt(t, hub, "", "delete rolloutstrategy careful -n "+ns), "Warning: still named by PropagationPolicy (2): what they place keeps its rollout")
	expectOutput(t, "the deletion of an enforced strategy", kubectlAt(t, hub, "", "delete clusterrolloutstrategy first-"+ns), "Warning: was enforced in 1 namespace: ")
	testwait.UntilNil(t, "the Bundle keeps its rollout", func(context.Context) error {
		out := runCLI(t, "get", "bundles", "-n", ns, "-o", "yaml")
		if !strings.Contains(out, "reason: RolloutStrategyMissing") || !strings.Contains(out, "name: first\n") {
			return errors.New(out)
		}
		return nil
	})
	if err := imagesOf(ns, "web", third, second)(t.Context()); err != nil {
		t.Errorf("the deletion moves on: %v", err)
	}
}
