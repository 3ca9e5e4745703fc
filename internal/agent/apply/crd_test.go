package apply

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/atoll"
)

// shells is a CRD whose group is the test's own.
func (w *world) shells(uid string) (crd atoll.Rendered, group string) {
	group = w.ns + ".example"
	return w.cluster(uid, strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shells.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: Shell, plural: shells, singular: shell}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`, "GROUP", group)), group
}

func (w *world) shell(uid, group string) atoll.Rendered {
	return w.item(uid, "apiVersion: "+group+"/v1\nkind: Shell\nmetadata: {name: conch}\nspec: {size: 3}")
}

func TestRemovalWithADefinitionAsDependencyIsReported(t *testing.T) {
	w := newWorld(t)
	crd, group := w.shells("t-crd")
	crd.Dependency = true
	conch := w.shell("t-conch", group)
	w.upsert(manifest("b1", 1, crd, conch))
	w.ready("b1", 1)
	uid := w.exists(crd.Key).GetUID()

	w.upsert(remove("b1", 2))
	w.removed("b1")
	w.absent(conch.Key)
	if live := w.exists(crd.Key); live.GetUID() != uid || live.GetLabels()[atoll.LabelBundleUID] != "" {
		t.Fatalf("the definition was to be let go and to stay: %v", live.GetLabels())
	}
}

// The last act for a Bundle may come long after all else was reported.
func TestTheLastActIsReported(t *testing.T) {
	for name, release := range map[string]bool{"deleted": false, "let-go": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			crd, group := w.shells("t-crd")
			crd.Dependency = release
			conch := w.shell("t-conch", group)
			w.upsert(manifest("b1", 1, crd, conch))
			w.ready("b1", 1)
			w.fence(false)
			w.upsert(remove("b1", 2))
			w.reason("b1", ReasonNotHolder)
			w.fence(true)
			w.removed("b1")
		})
	}
}

// A Bundle whose claim ends because another Bundle takes the object on, and one
// that waits for a Bundle which never comes, are reported too.
func TestClaimsThatEndByOthersAreReported(t *testing.T) {
	w := newWorld(t)
	conf := w.item("t-conf", configMap)
	w.upsert(manifest("b1", 1, conf))
	w.ready("b1", 1)
	w.upsert(withTombstones(manifest("b1", 2), moved(conf, "b2")))
	w.status("b1", func(s atoll.RowStatus) bool { return s.Generation == 2 && len(s.Gone) == 0 })
	w.upsert(remove("b2", 1))
	w.removed("b2")
	if err := w.Forget(t.Context(), "b2", time.Now()); err != nil {
		t.Fatal(err)
	}
	w.status("b1", func(s atoll.RowStatus) bool { return len(s.Gone) == 1 && s.Gone[0] == claims.TombstoneID(moved(conf)) })
	w.absent(conf.Key)
}
