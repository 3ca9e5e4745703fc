package sourcesets

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/sources/generate"
)

const clusterSpec = "{generators: [{clusters: {labelSelector: {matchLabels: {env: prod}}}}], template: {metadata: {name: 'web-{{.cluster.name}}'}, spec: {repository: repo, ref: {branch: main}, placement: {clusterAffinity: {clusterNames: ['{{.cluster.name}}']}}}}}"

const paused = "Applied=False/RemovalPaused Generated=True/Generated"

// Clusters of the namespace's ClusterSets make Sources. A label that changes removes one after a pause, and a lost right does not.
func TestClustersOfTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, clusterSpec)
		prod := func(set string) map[string]string { return map[string]string{"env": "prod", "set": set} }
		for name, labels := range map[string]map[string]string{"oslo": prod("a"), "bergen": prod("a"), "bodo": prod("a"), "hamar": prod("a"), "paris": prod("b"), "test": {"env": "test", "set": "a"}} {
			h.clusters.setCluster(name, labels)
		}
		h.clusters.setCluster("asking", prod("a"))
		h.clusters["asking"].Spec.Accepted = false
		h.expectStep("clusters of the set", h.runReconcile(), "apply web-bergen, apply web-bodo, apply web-hamar, apply web-oslo", good)
		if o := h.readSet().Status.Inventory[0]; o.Cluster != "bergen" {
			t.Errorf("%+v", o)
		}
		h.clusters.setCluster("bergen", map[string]string{"env": "test", "set": "a"})
		h.expectStep("another label", h.runReconcile(), "", paused)
		time.Sleep(generate.RemovalPause)
		h.expectStep("after the pause", h.runReconcile(), "delete web-bergen", good)
		h.clusters["bodo"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		h.expectStep("a cluster that is being deleted", h.runReconcile(), "", good)
		delete(h.clusters, "bodo")
		h.expectStep("a cluster that is gone", h.runReconcile(), "", paused)
		time.Sleep(generate.RemovalPause)
		h.expectStep("gone for the pause", h.runReconcile(), "delete web-bodo", good)
		h.clusters.setCluster("hamar", prod("b"))
		h.expectStep("a lost right", h.runReconcile(), "", good+" web-hamar NotInBoundSet")
		h.clusters.setCluster("hamar", prod("a"))
		h.expectStep("the right is back", h.runReconcile(), "", good)
		h.clusters.setCluster("oslo", prod("b"))
		h.clusters.setCluster("hamar", prod("b"))
		h.expectStep("no cluster is left", h.runReconcile(), "", "Applied=True/Applied Generated=False/GeneratorEmpty web-hamar GeneratorEmpty web-oslo GeneratorEmpty")
	})
}

// Labels that change and change back within the pause make and delete nothing. The status has the time since when the Source is dropped.
func TestFlappingLabelsKeepTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, clusterSpec)
		label := func(name, env string) { h.clusters.setCluster(name, map[string]string{"env": env, "set": "a"}) }
		label("oslo", "prod")
		label("bergen", "prod")
		h.runReconcile()
		for range 3 {
			label("oslo", "test")
			h.expectStep("away", h.runReconcile(), "", paused)
			version := h.readSet().ResourceVersion
			if o := h.readSet().Status.Inventory[1]; o.Name != "web-oslo" || o.DroppedTime == nil || !o.DroppedTime.Time.Equal(time.Now().Truncate(time.Second)) {
				t.Errorf("%+v", o)
			}
			time.Sleep(generate.RemovalPause / 2)
			wait, err := h.r.reconcileSet(t.Context(), setKey)
			if err != nil || wait <= 0 || wait > generate.RemovalPause/2 || h.readSet().ResourceVersion != version {
				t.Errorf("a pause costs a write, or has no end: %s, %v", wait, err)
			}
			label("oslo", "prod")
			h.expectStep("and back", h.runReconcile(), "", good)
			if o := h.readSet().Status.Inventory[1]; o.DroppedTime != nil {
				t.Errorf("%+v", o)
			}
		}
	})
}
