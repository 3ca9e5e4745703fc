package state

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

func TestWhereANamespaceIsPlaced(t *testing.T) {
	rows, _ := newTestRows(t)
	shop := enginev1.BundleRef{UID: "b1", Namespace: "shop", Name: "web"}
	for _, of := range []struct {
		bundle   enginev1.BundleRef
		clusters []string
	}{
		{shop, []string{"oslo", "tokyo"}},
		{enginev1.BundleRef{UID: "b2", Namespace: "shop", Name: "api"}, []string{"tokyo"}},
		{enginev1.BundleRef{UID: "b3", Namespace: "mail", Name: "in"}, []string{"tokyo"}},
		{enginev1.BundleRef{UID: "b4", Name: "wide"}, []string{"lima"}},
	} {
		if err := rows.WriteSpecs(t.Context(), of.bundle, nil, rowSpecsFor(of.clusters...)); err != nil {
			t.Fatal(err)
		}
	}
	said := func(namespace string) string {
		placed := rows.PlacedNamespacesByCluster(namespace)
		for _, in := range placed {
			slices.Sort(in)
		}
		return fmt.Sprint(placed)
	}
	at := func(namespace, cluster string, want bool) {
		t.Helper()
		if got := rows.HasRowsInNamespace(namespace, cluster); got != want {
			t.Errorf("namespace %s in %s: %t", namespace, cluster, got)
		}
	}
	if got, want := said(""), "map[oslo:[shop] tokyo:[mail shop]]"; got != want {
		t.Errorf("everything is in %s, want %s", got, want)
	}
	if got, want := said("shop"), "map[oslo:[shop] tokyo:[shop]]"; got != want {
		t.Errorf("shop is in %s, want %s", got, want)
	}
	at("shop", "oslo", true)
	at("mail", "oslo", false)
	at("none", "oslo", false)
	slice := rows.ListOfBundle("b1")[0].Slice
	rows.removeObject(&enginev1.TargetSlice{ObjectMeta: metav1.ObjectMeta{Name: slice, UID: rows.pages[slice].meta.UID}})
	at("shop", "oslo", false)
	at("shop", "tokyo", true)
}

// The cost of one namespace's rows follows that namespace alone.
func BenchmarkWhereANamespaceIsPlaced(b *testing.B) {
	for _, others := range []int{0, 2000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			rows := newRows(nil)
			for n := range others + 1 {
				ns := "other"
				if n == 0 {
					ns = "shop"
				}
				s := healthySlice(n, 0, 100)
				s.Spec.Bundle.Namespace = ns
				rows.put(s)
			}
			b.ResetTimer()
			for range b.N {
				if len(rows.PlacedNamespacesByCluster("shop")) != 100 {
					b.Fatal("not all of it")
				}
			}
		})
	}
}
