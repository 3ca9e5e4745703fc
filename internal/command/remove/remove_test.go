package remove

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// What --yes confirms is the objects that were listed, whatever became of them meanwhile.
func TestTheSameObjectsAreConfirmed(t *testing.T) {
	web := object{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", Bundle: "shop/web", State: atoll.RowReady}
	conf := object{Kind: "ConfigMap", Namespace: "shop", Name: "web", Bundle: "shop/web"}
	later := web
	later.State, later.Bundle, later.Only = atoll.RowDegraded, "shop/other", true
	elsewhere := conf
	elsewhere.Namespace = "mall"
	for _, tc := range []struct {
		name          string
		listed, there []object
		want          bool
	}{
		{"the same", []object{web, conf}, []object{web, conf}, true},
		{"in another order, another state and another Bundle", []object{web, conf}, []object{conf, later}, true},
		{"wanted by two Bundles", []object{web, conf}, []object{web, conf, later}, true},
		{"one on top", []object{web}, []object{web, conf}, false},
		{"one less", []object{web, conf}, []object{web}, false},
		{"another namespace's", []object{web, conf}, []object{web, elsewhere}, false},
		{"nothing any more", []object{web}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := same(tc.there, tc.listed); got != tc.want {
				t.Errorf("%t", got)
			}
		})
	}
}
