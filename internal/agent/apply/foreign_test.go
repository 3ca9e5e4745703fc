package apply

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A search before the deletion of a namespace finds what the guard of the deletion would find.
func TestForeignObjectsAreFoundBeforeTheDeletion(t *testing.T) {
	object := func(kind, name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {namespace: shop, name: %s, uid: u-%s%s}", kind, name, name, more)
	}
	foreign := func(resource, name string) atoll.ForeignObject {
		return atoll.ForeignObject{Resource: schema.GroupResource{Resource: resource}, Name: name}
	}
	set := `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop, uid: live, managedFields: [{manager: controllers, operation: Update, subresource: status, fieldsV1: {"f:status": {}}}]},
 spec: {selector: {matchLabels: {app: db}}, volumeClaimTemplates: [{metadata: {name: data}}]}}`
	claim := func(name string) string {
		return object("PersistentVolumeClaim", name, `, labels: {app: db}, managedFields: [{manager: controllers, operation: Update, fieldsV1: {"f:spec": {"f:accessModes": {}}}}]`)
	}
	dbItem := atoll.RenderedItem{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}, APIVersion: "apps/v1", UID: "t"}
	db, ours := wantedRecord(dbItem), wantedRecord(confItem("x"))
	adopted := ours
	adopted.Adopted = true
	of := func(edit func(*ownership.Record)) ownership.Record {
		r := shopNamespace
		edit(&r)
		return r
	}
	var many []string
	for i := range 23 {
		many = append(many, object("Secret", fmt.Sprintf("s%02d", i), ""))
	}
	ownConf := strings.Replace(object("ConfigMap", "conf", ""), "u-conf", ours.UID, 1)
	forbidden := refusals{"GET secrets": apierrors.NewForbidden(configMaps, "secrets", errors.New("why"))}
	for name, c := range map[string]struct {
		namespace ownership.Record
		records   []ownership.Record
		objects   []string
		refused   refusals
		want      []atoll.ForeignObject
		more      int64
		unread    string
	}{
		"nothing":                         {},
		"what comes with the namespace":   {objects: []string{object("ServiceAccount", "default", ""), object("Event", "e", "")}},
		"what goes already":               {objects: []string{object("Pod", "p", ", deletionTimestamp: 2026-01-01T00:00:00Z")}},
		"two kinds":                       {objects: []string{object("Secret", "s", ""), object("ConfigMap", "mine", ""), object("ConfigMap", "also", "")}, want: []atoll.ForeignObject{foreign("configmaps", "also"), foreign("configmaps", "mine"), foreign("secrets", "s")}},
		"Atoll's own":                     {records: []ownership.Record{ours}, objects: []string{ownConf}},
		"one that Atoll adopted":          {records: []ownership.Record{adopted}, objects: []string{ownConf}, want: []atoll.ForeignObject{foreign("configmaps", "conf")}},
		"claims of a StatefulSet":         {records: []ownership.Record{db}, objects: []string{set, claim("data-db-0"), claim("log-db-0")}, want: []atoll.ForeignObject{foreign("persistentvolumeclaims", "log-db-0")}},
		"a namespace that is not Atoll's": {namespace: of(func(r *ownership.Record) { r.Key = atoll.NamespaceKey("blog") }), objects: []string{object("Secret", "s", "")}},
		"one that is not made yet":        {namespace: of(func(r *ownership.Record) { r.UID = "" }), objects: []string{object("Secret", "s", "")}},
		"one that Atoll adopted itself":   {namespace: of(func(r *ownership.Record) { r.Adopted = true }), objects: []string{object("Secret", "s", "")}},
		"a kind that may not be listed":   {objects: []string{object("ConfigMap", "mine", "")}, refused: forbidden, want: []atoll.ForeignObject{foreign("configmaps", "mine")}, unread: "the agent could not list all of secrets"},
		"claims that may not be listed":   {records: []ownership.Record{db}, objects: []string{set}, refused: refusals{"GET persistentvolumeclaims": memberBusy()}, unread: "the agent could not list all of persistentvolumeclaims, the claims of StatefulSet db"},
		"more than are named":             {objects: many, more: 3},
	} {
		t.Run(name, func(t *testing.T) {
			if c.namespace.Key.Name == "" {
				c.namespace = shopNamespace
			}
			refused := refusals{}
			e := newStubEngine(t, refuseSome(newMemoryMember(t, c.objects...), refused), append([]ownership.Record{c.namespace}, c.records...))
			for request, err := range c.refused {
				refused[request] = err
			}
			got := e.ForeignObjects(t.Context(), "shop")
			if c.more > 0 {
				if len(got.Objects) != atoll.MaxForeignObjects || got.Objects[0] != foreign("secrets", "s00") {
					t.Errorf("named are %v", got.Objects)
				}
				got.Objects = nil
			}
			if len(got.Objects) == 0 {
				got.Objects = nil
			}
			if want := (atoll.ForeignObjects{Objects: c.want, More: c.more, Unread: c.unread}); !reflect.DeepEqual(got, want) {
				t.Errorf("it finds %+v, want %+v", got, want)
			}
		})
	}
}

// A member that does not answer delays the search by its bound, and the answer names what is not known.
func TestASearchForForeignObjectsIsBounded(t *testing.T) {
	api, hangs := newMemoryMember(t), false
	e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs {
			<-r.Context().Done()
			return
		}
		api.ServeHTTP(w, r)
	}), []ownership.Record{shopNamespace})
	hangs = true
	synctest.Test(t, func(t *testing.T) {
		if got := e.ForeignObjects(t.Context(), "shop"); !strings.Contains(got.Unread, "could not list all of") || len(got.Objects) > 0 {
			t.Errorf("it finds %+v", got)
		}
	})
}
