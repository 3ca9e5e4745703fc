package clusterstatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/session"
)

func TestAPIsAreStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			apis := []string{"/v1/Pod", "apps/v1/Deployment"}
			hash := session.APIsHash(apis)
			if known, err := w.IsAPISetStored(t.Context(), hash); err != nil || known {
				t.Errorf("known %t, %v", known, err)
			}
			for i := range 3 {
				inv := healthyInventory()
				inv.Apis, inv.ApisHash = slices.Clone(apis), hash
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
				w.RecordInventory(fmt.Sprintf("u%d", i), inv)
			}
			synctest.Wait()
			var sets enginev1.APISetList
			if err := w.client.List(t.Context(), &sets); err != nil || len(sets.Items) != 1 || !slices.Equal(sets.Items[0].APIs, apis) {
				t.Errorf("stored %v, %v", sets.Items, err)
			}
			if known, err := w.IsAPISetStored(t.Context(), hash); err != nil || !known {
				t.Errorf("known %t, %v", known, err)
			}
			lie := healthyInventory()
			lie.Apis, lie.ApisHash = apis[:1], "not-its-hash"
			w.RecordInventory("u0", lie)
			advanceClock(settle)
			if err := w.client.List(t.Context(), &sets); err != nil || len(sets.Items) != 1 {
				t.Errorf("a list under a wrong hash was stored: %v, %v", sets.Items, err)
			}
		})
	})
}

// A member adds one new set of APIs an hour after a burst; until then its Cluster goes on naming the
// set before, and everything else of its inventory is written. Sets of other members are no new ones.
func TestNewSetsOfAPIsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.run(func() {
			report := func(uid string, n, nodes int) (hash string) {
				inv := healthyInventory()
				inv.Apis, inv.NodesTotal = []string{"/v1/Pod", fmt.Sprintf("x%d.io/v1/Thing", n)}, int32(nodes)
				inv.ApisHash = session.APIsHash(inv.Apis)
				hash = inv.ApisHash
				w.RecordInventory(uid, inv)
				advanceClock(settle)
				return hash
			}
			stored := func() int {
				var sets enginev1.APISetList
				if err := w.client.List(t.Context(), &sets); err != nil {
					t.Fatal(err)
				}
				return len(sets.Items)
			}
			named := func(name string) (hash string, nodes int32) {
				c, _ := w.Get(name)
				return c.Status.APIsHash, c.Status.Nodes.Total
			}
			w.StreamUp("u0", "TLS")
			w.StreamUp("u1", "TLS")
			last := ""
			for i := range pace.NewAPISets.Burst {
				last = report("u0", i, 3)
			}
			if n := stored(); n != pace.NewAPISets.Burst {
				t.Fatalf("%d sets are stored, want %d", n, pace.NewAPISets.Burst)
			}
			over := report("u0", 100, 7)
			if hash, nodes := named("c0"); stored() != pace.NewAPISets.Burst || hash != last || nodes != 7 {
				t.Errorf("beyond the burst: %d sets, the Cluster names %s with %d nodes", stored(), hash, nodes)
			}
			if known := report("u1", 0, 3); stored() != pace.NewAPISets.Burst {
				t.Errorf("the set %s of another member is a new one", known)
			}
			advanceClock(pace.NewAPISets.Interval)
			advanceClock(settle)
			if hash, _ := named("c0"); stored() != pace.NewAPISets.Burst+1 || hash != over {
				t.Errorf("an hour later: %d sets, the Cluster names %s, want %s", stored(), hash, over)
			}
			malformed := healthyInventory()
			malformed.Apis = []string{"not an api"}
			malformed.ApisHash = session.APIsHash(malformed.Apis)
			w.RecordInventory("u1", malformed)
			advanceClock(settle)
			if stored() != pace.NewAPISets.Burst+1 {
				t.Error("a malformed list is stored")
			}
		})
	})
}

// The leader deletes a set that no Cluster has named for a whole interval, and no other.
func TestUnusedSetsOfAPIsAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if err := w.client.Create(t.Context(), &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "left-over"}, APIs: []string{"/v1/Pod"}}); err != nil {
			t.Fatal(err)
		}
		w.run(func() {
			names := func() string {
				var sets enginev1.APISetList
				if err := w.client.List(t.Context(), &sets); err != nil {
					t.Fatal(err)
				}
				var out []string
				for i := range sets.Items {
					out = append(out, sets.Items[i].Name)
				}
				return strings.Join(out, " ")
			}
			w.StreamUp("u0", "TLS")
			var hashes []string
			for i := range 2 {
				inv := healthyInventory()
				inv.Apis = []string{fmt.Sprintf("x%d.io/v1/Thing", i)}
				inv.ApisHash = session.APIsHash(inv.Apis)
				hashes = append(hashes, inv.ApisHash)
				w.RecordInventory("u0", inv)
				advanceClock(settle)
			}
			if got := names(); len(strings.Fields(got)) != 3 {
				t.Fatalf("stored are %q", got)
			}
			advanceClock(collectInterval) // notes
			if got := names(); len(strings.Fields(got)) != 3 {
				t.Errorf("deleted at once, left are %q", got)
			}
			advanceClock(collectInterval)
			if got := names(); got != hashes[1] {
				t.Errorf("left are %q, want %q", got, hashes[1])
			}
			if known, err := w.IsAPISetStored(t.Context(), hashes[0]); err != nil || known {
				t.Errorf("a deleted set is known: %t, %v", known, err)
			}
		})
	})
}
