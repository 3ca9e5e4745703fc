package apply

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// Claims that a StatefulSet's controller made go with a namespace that was deleted on the hub. A claim that another made
// keeps the namespace, and so does any claim where the StatefulSet alone was deleted before.
func TestClaimsOfAStatefulSetGoWithTheNamespace(t *testing.T) {
	const set = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop, uid: s1, managedFields: [
  {manager: atoll, operation: Apply, fieldsV1: {"f:spec": {}}}, {manager: controllers, operation: Update, subresource: status, fieldsV1: {"f:status": {}}}]},
 spec: {selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: data}}, {metadata: {name: log}}]}}`
	claim := func(name, app, manager string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, uid: %s, namespace: shop, labels: {app: %s}, managedFields: [
  {manager: %s, operation: Update, fieldsV1: {"f:spec": {"f:accessModes": {}}}}, {manager: controllers, operation: Update, fieldsV1: {"f:spec": {"f:volumeName": {}}}}]}}`, name, name, app, manager)
	}
	setKey := atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}
	for name, c := range map[string]struct {
		claims []string
		before bool // the StatefulSet goes before its namespace is deleted
		want   atoll.Reason
	}{
		"its claims":                         {claims: []string{claim("data-db-0", "db", "controllers"), claim("log-db-11", "db", "controllers")}},
		"one that a person made":             {claims: []string{claim("data-db-0", "db", "kubectl")}, want: atoll.ReasonForeignObjects},
		"one of a name that is no ordinal's": {claims: []string{claim("data-db-x0", "db", "controllers")}, want: atoll.ReasonForeignObjects},
		"one of another set":                 {claims: []string{claim("data-db2-0", "db", "controllers")}, want: atoll.ReasonForeignObjects},
		"one of another template":            {claims: []string{claim("tmp-db-0", "db", "controllers")}, want: atoll.ReasonForeignObjects},
		"one with other labels":              {claims: []string{claim("data-db-0", "web", "controllers")}, want: atoll.ReasonForeignObjects},
		"its claims and one of a person":     {claims: []string{claim("data-db-0", "db", "controllers"), claim("mine", "db", "kubectl")}, want: atoll.ReasonForeignObjects},
		"a set that was deleted by itself":   {claims: []string{claim("data-db-0", "db", "controllers")}, before: true, want: atoll.ReasonForeignObjects},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, append(c.claims, set)...)
			space := shopNamespace
			space.Doomed = !c.before
			m := newManifest("b1", 2)
			m.Remove, m.Namespace = true, "shop"
			e := engineOn(t, api, space, m)
			e.book.RestoreRecord(ownership.Record{
				Key: setKey, APIVersion: "apps/v1", UID: "s1", Template: "t", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Leaving, Template: "t"}},
			})
			if f := e.workOnKey(t.Context(), setKey); f != nil && f.Reason != atoll.ReasonTerminating {
				t.Fatalf("the set: %+v", f)
			}
			delete(api.objects, "/apis/apps/v1/namespaces/shop/statefulsets/db")
			if f := e.workOnKey(t.Context(), setKey); f != nil {
				t.Fatalf("the set: %+v", f)
			}
			if m.Generation, m.DeletedNamespaces = 3, []string{"shop"}; c.before {
				e.foldHolding(ownership.BundleHolding{Manifest: m}, nil)
			}
			if got := reasonOf(e.workOnKey(t.Context(), space.Key)); got != c.want {
				t.Errorf("the namespace stays for %q, want %q", got, c.want)
			}
		})
	}
}
