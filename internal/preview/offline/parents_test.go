package offline

import "testing"

const familyYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.example.com}
spec: {group: example.com, scope: Namespaced, names: {plural: shops, kind: Shop}}
---
apiVersion: example.com/v1
kind: Shop
metadata: {name: a, namespace: shop, annotations: {atoll.dev/clusters: tokyo}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop, ownerReferences: [{apiVersion: example.com/v1, kind: Shop, name: a, uid: u, controller: true}]}
`

// Files say of children what a hub with the settings among them would do.
func TestChildrenInFiles(t *testing.T) {
	const children = "apiVersion: atoll.dev/v1alpha1\nkind: HubSettings\nmetadata: {name: hub}\nspec: {childPlacement: Parent}"
	const hubOnly = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gifts.example.com, labels: {atoll.dev/hub-only: 'true'}}\nspec: {group: example.com, scope: Cluster, names: {plural: gifts, kind: Gift}}\n---\n" +
		"apiVersion: example.com/v1\nkind: Gift\nmetadata: {name: g, annotations: {atoll.dev/clusters: tokyo}}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r, ownerReferences: [{apiVersion: example.com/v1, kind: Gift, name: g, uid: u, controller: true}]}"
	const crd, shop = "apiextensions.k8s.io/CustomResourceDefinition//shops.example.com", "example.com/Shop/shop/a"
	const noSource = "no policy and no annotation selects it"
	for name, tc := range map[string]struct{ text, want string }{
		"without settings": {"", "shop/shop-a-b7197ffe74[" + crd + "+ " + shop + "]: tokyo; not /ConfigMap/shop/c (" + noSource + ")"},
		"with a child":     {children, "shop/shop-a-b7197ffe74[/ConfigMap/shop/c " + crd + "+ " + shop + "]: tokyo"},
		"a parent that stays on the hub": {children + "\n---\n" + hubOnly,
			"/gift-g-d8d0db75e2[rbac.authorization.k8s.io/ClusterRole//r]: tokyo; shop/shop-a-b7197ffe74[/ConfigMap/shop/c " + crd + "+ " + shop + "]: tokyo; " +
				"not apiextensions.k8s.io/CustomResourceDefinition//gifts.example.com (" + noSource + "); not example.com/Gift//g (it is stated to stay on the hub)"},
		"a parent that is not among the files": {children + "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop, ownerReferences: [{apiVersion: example.com/v1, kind: Shop, name: b, uid: u, controller: true}]}",
			"shop/shop-a-b7197ffe74[/ConfigMap/shop/c " + crd + "+ " + shop + "]: tokyo; not /Secret/shop/s (" + noSource + ", and its parent Shop/b is not on the hub)"},
		"a value without a meaning": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d, annotations: {atoll.dev/hub-only: 'no'}}",
			`refused: /ConfigMap/default/d: atoll.dev/hub-only is "true" or absent, and not "no"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describePlacement(t, parseObjects(t, threeClusters, familyYAML, tc.text)); got != tc.want {
				t.Errorf("comes to\n  %s\nwant\n  %s", got, tc.want)
			}
		})
	}
}
