package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const versionedDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tiles.versions.example}
spec:
  group: versions.example
  scope: Namespaced
  names: {plural: tiles, singular: tile, kind: Tile, listKind: TileList}
  versions:
`

const (
	olderTile = `  - {name: v1beta1, served: true, storage: $STORED, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}
`
	newerTile = `  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, color: {type: string}}}}}}}
`
)

const versionedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: versioned, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler}]
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: tiles, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: versions.example/v1, kind: Tile}]
  placement: {clusterAffinity: {clusterNames: [member2]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: $NS}
spec:
  maxReplicas: 7
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 65}}}
  - {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}
---
apiVersion: versions.example/v1
kind: Tile
metadata: {name: floor, namespace: $NS}
spec: {size: 4}
`

// TestAMemberGetsTheVersionThatItServes: a member without autoscaling/v2, and with an older definition,
// gets the objects in the versions that it serves. Once it serves the templates' versions, it gets those. A field that the older
// version does not have is named.
func TestAMemberGetsTheVersionThatItServes(t *testing.T) {
	const ns, crd = "versions", "tiles.versions.example"
	hub, member1, member2 := sharedWorld.lab.KubeconfigPath("hub"), sharedWorld.lab.KubeconfigPath("member1"), sharedWorld.lab.KubeconfigPath("member2")
	isOlder := true
	t.Cleanup(func() {
		if isOlder {
			restartWithAPIs(context.WithoutCancel(t.Context()), t, "member2", "")
		}
	})
	restartWithAPIs(t.Context(), t, "member2", "autoscaling/v2=false")
	for _, cluster := range []string{"hub", "member2"} {
		kubectlAtEnd(t, cluster, "delete crd "+crd+" --ignore-not-found --wait=false")
	}
	kubectlAtEnd(t, "hub", "delete namespace "+ns+" --wait=false")
	for kubeconfig, definition := range map[string]string{
		hub: versionedDefinition + strings.ReplaceAll(olderTile, "$STORED", "false") + newerTile, member2: versionedDefinition + strings.ReplaceAll(olderTile, "$STORED", "true"),
	} {
		expectOutput(t, "the definition", kubectlAt(t, kubeconfig, definition, "apply -f -"), "created")
		kubectlAt(t, kubeconfig, "", "wait crd/"+crd+" --for=condition=Established --timeout=60s")
	}
	createNamespace(t, ns)
	expectOutput(t, "the objects", kubectlAt(t, hub, strings.ReplaceAll(versionedObjects, "$NS", ns), "apply -f -"), "tile.versions.example/floor created")

	// A version that member2 always serves, and a cache of its own: kubectl keeps what a server at this address served before.
	const autoscaler = "hpa.v1.autoscaling/web"
	readUncached := func(kubeconfig, args string) string {
		return kubectlAt(t, kubeconfig, "", "get -n "+ns+" --cache-dir="+t.TempDir()+" "+args)
	}
	appliedAs := func(kubeconfig, object, want string) func(context.Context) error {
		return func(context.Context) error {
			read := object
			if object == "hpa/web" {
				read = autoscaler
			}
			out := readUncached(kubeconfig, read+" --show-managed-fields -o jsonpath={.metadata.managedFields[?(@.operation==\"Apply\")].apiVersion}")
			if strings.TrimSpace(out) != want {
				return fmt.Errorf("%s is applied as %s, want %s; explained: %s", object, out, want, onHub(t, ns, "explain "+object))
			}
			return nil
		}
	}
	testwait.UntilNil(t, "each member has the version that it serves", allChecks(
		appliedAs(member1, "hpa/web", "autoscaling/v2"), appliedAs(member2, "hpa/web", "autoscaling/v1"), appliedAs(member2, "tile/floor", "versions.example/v1beta1"),
	))
	if got := strings.TrimSpace(readUncached(member2, autoscaler+" -o jsonpath={.spec.targetCPUUtilizationPercentage}")); got != "65" {
		t.Errorf("the CPU target in member2 is %q, want 65", got)
	}
	expectOutput(t, "explain", onHub(t, ns, "explain hpa/web"), `/apiVersion = "autoscaling/v1" by what the cluster serves, in member2`)

	kubectlAt(t, hub, "", "patch -n "+ns+" tile/floor --type=merge -p {\"spec\":{\"color\":\"red\"}}")
	testwait.UntilNil(t, "the field that member2 lacks is named", func(context.Context) error {
		if out := onHub(t, ns, "explain tile/floor"); !strings.Contains(out, "color") {
			return fmt.Errorf("explained: %s", out)
		}
		return nil
	})
	before := readUncached(member2, autoscaler+" -o jsonpath={.metadata.uid}")
	restartWithAPIs(t.Context(), t, "member2", "")
	isOlder = false
	kubectlAt(t, member2, versionedDefinition+strings.ReplaceAll(olderTile, "$STORED", "false")+newerTile, "apply -f -")
	testwait.UntilNil(t, "member2 has the templates' versions", allChecks(
		appliedAs(member2, "hpa/web", "autoscaling/v2"), appliedAs(member2, "tile/floor", "versions.example/v1"),
	))
	if after := readUncached(member2, autoscaler+" -o jsonpath={.metadata.uid}"); after != before {
		t.Errorf("the autoscaler was %s and is %s", before, after)
	}
}

// restartWithAPIs starts a member again, with an API server that serves other API versions.
func restartWithAPIs(ctx context.Context, t *testing.T, member, config string) {
	t.Helper()
	l := sharedWorld.lab
	for _, do := range []func() error{
		func() error { return l.SetRuntimeConfig(ctx, member, config) },
		func() error { return l.KillComponent(ctx, member) },
		func() error { return l.StartComponent(ctx, member) },
	} {
		if err := do(); err != nil {
			t.Fatalf("%s with the APIs %q: %v", member, config, err)
		}
	}
}
