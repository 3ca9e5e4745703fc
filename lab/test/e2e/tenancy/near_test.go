package tenancy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// Scores, distances and rated objects belong to the namespace: a placement shows neither
// where applications of others are, nor how others rate clusters.
func nothingIsNearOthers(t *testing.T) {
	apply(t, `
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: acme-2, labels: {atoll.dev/set: acme-set, owner: acme}}, spec: {accepted: true, region: there}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: secretive, namespace: rival}}
---
{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: secretive, namespace: rival}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: secretive}]}}
---
{apiVersion: atoll.dev/v1alpha1, kind: ClusterScore, metadata: {name: rivals, namespace: rival}, spec: {clusterName: acme-2, scores: [{name: price, value: 1000}]}}
`)
	testwait.UntilNil(t, "the rival's is placed", func(context.Context) error {
		if !strings.Contains(rowsOutput(t, "rival"), "rival-1") {
			return errors.New("it has no row yet")
		}
		return nil
	})
	on := func(name, scores string) (clusters string) {
		apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: acme}}\n---\n"+
			strings.NewReplacer("name: try", "name: "+name, "kind: ConfigMap}", "kind: ConfigMap, name: "+name+"}").Replace(acmePlacement("maxClusters: 1, scores: ["+scores+"]")))
		testwait.UntilNil(t, "it is placed", func(context.Context) error {
			for line := range strings.Lines(rowsOutput(t, "acme")) {
				if strings.Contains(line, name+"-") || strings.Contains(line, name+" ") {
					clusters = map[bool]string{true: "acme-1", false: "acme-2"}[strings.Contains(line, "acme-1")]
					return nil
				}
			}
			return errors.New("it has no row yet")
		})
		return clusters
	}
	// By one's own rating acme-1 is better, whatever others say of acme-2; and with what
	// others have in the region of acme-2 nothing is near or far, so that the rating alone
	// decides.
	apply(t, "{apiVersion: atoll.dev/v1alpha1, kind: ClusterScore, metadata: {name: own, namespace: acme}, spec: {clusterName: acme-1, scores: [{name: price, value: 10}]}}")
	for name, scores := range map[string]string{
		"rated": "{name: ClusterScore, measure: price}",
		"near":  "{name: ClusterScore, measure: price}, {name: Affinity, weight: 100, bundles: {names: [secretive, rival/secretive], within: region}}",
	} {
		if got := on("score-"+name, scores); got != "acme-1" {
			t.Errorf("%s: it is on %s", name, got)
		}
	}
}
