package history

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

var start = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)

// newChange returns the n-th change of an object of a namespace, of so many bytes.
func newChange(namespace, name string, n int, bytes int64) *Change {
	return &Change{
		ID: fmt.Sprintf("%s/%s/%d", namespace, name, n), Object: atoll.ItemKey{Kind: "ConfigMap", Namespace: namespace, Name: name},
		Revision: fmt.Sprint(n), Operation: Edited, At: start.Add(time.Duration(n) * time.Second), By: "ann", Bytes: bytes,
	}
}

func idsOf(changes []*Change) (out []string) {
	for _, c := range changes {
		out = append(out, c.ID)
	}
	return out
}

// keptIDs lists the kept changes of an object.
func keptIDs(x *Index, namespace, name string) []string {
	return idsOf(x.ListOfObject(atoll.ItemKey{Kind: "ConfigMap", Namespace: namespace, Name: name}))
}

func TestAnObjectKeepsItsNewestChanges(t *testing.T) {
	x := NewIndex()
	for n := 1; n <= 10; n++ {
		if out := x.Add(newChange("shop", "web", n, 1000)); out != nil {
			t.Fatalf("change %d displaces %v", n, idsOf(out))
		}
	}
	if out := idsOf(x.Add(newChange("shop", "web", 11, 1000))); !slices.Equal(out, []string{"shop/web/1"}) {
		t.Errorf("the eleventh change displaces %v", out)
	}
	if x.Add(newChange("shop", "web", 11, 1000)) != nil || x.Len() != 10 || x.Bytes() != 10_000 {
		t.Errorf("the same change again: %d changes of %d bytes", x.Len(), x.Bytes())
	}
	// 1 MiB is 1,048,576 bytes: 9,000 bytes and 1,040,000 fit, and a tenth change of 1,000 does not.
	if out := idsOf(x.Add(newChange("shop", "web", 12, 1_040_000))); !slices.Equal(out, []string{"shop/web/2", "shop/web/3"}) {
		t.Errorf("a large change displaces %v", out)
	}
	if out := idsOf(x.Add(newChange("shop", "big", 1, MaxObjectBytes+1))); !slices.Equal(out, []string{"shop/big/1"}) || keptIDs(x, "shop", "big") != nil {
		t.Errorf("a change that is too large displaces %v", out)
	}
	// A change of another hub that comes late is sorted by its revision.
	late := NewIndex()
	for _, n := range []int{9, 100, 10} {
		late.Add(newChange("shop", "web", n, 1))
	}
	if got := keptIDs(late, "shop", "web"); !slices.Equal(got, []string{"shop/web/9", "shop/web/10", "shop/web/100"}) {
		t.Errorf("the order is %v", got)
	}
}

func TestManyChangesOfOneObjectLeaveOthersTheirs(t *testing.T) {
	x := NewIndex()
	for n := range MaxNamespaceChanges {
		x.Add(newChange("shop", fmt.Sprint("c", n), 1, 1))
	}
	// The first change of another object takes the oldest one; the next ones take its own.
	if out := x.Add(newChange("shop", "noisy", 2, 1)); len(out) != 1 || out[0].Object.Name == "noisy" {
		t.Fatalf("the first change displaces %v", idsOf(out))
	}
	for n := 3; n < 50; n++ {
		if out := idsOf(x.Add(newChange("shop", "noisy", n, 1))); !slices.Equal(out, []string{fmt.Sprintf("shop/noisy/%d", n-1)}) {
			t.Fatalf("change %d displaces %v", n, out)
		}
	}
	if x.Len() != MaxNamespaceChanges {
		t.Errorf("%d changes are kept", x.Len())
	}
}

func TestTheLargestHolderOfANamespaceGivesWay(t *testing.T) {
	x := NewIndex()
	// 4 MiB are 4,194,304 bytes: four objects of 1,000,000 leave 194,304.
	for _, name := range []string{"a", "b", "c"} {
		x.Add(newChange("shop", name, 1, 1_000_000))
	}
	for n := range 10 {
		x.Add(newChange("shop", "holder", 10+n, 100_000))
	}
	out := idsOf(x.Add(newChange("shop", "new", 30, 300_000)))
	if !slices.Equal(out, []string{"shop/holder/10", "shop/holder/11"}) {
		t.Errorf("a change of another object displaces %v", out)
	}
	if out := idsOf(x.Add(newChange("shop", "new", 31, 300_000))); !slices.Equal(out, []string{"shop/new/30"}) {
		t.Errorf("the next change displaces %v", out)
	}
	if keptIDs(x, "shop", "a") == nil {
		t.Error("the only change of a large object is gone")
	}
	if out := x.Add(newChange("other", "new", 1, 1_000_000)); out != nil {
		t.Errorf("a change of another namespace displaces %v", idsOf(out))
	}
}

// fillNamespace adds 16 changes of 256 KiB each.
func fillNamespace(x *Index, namespace string) {
	for n := range 16 {
		x.Add(newChange(namespace, fmt.Sprint("c", n), n+1, MaxObjectBytes/4))
	}
}

func TestAFloodLeavesOtherNamespacesTheirShare(t *testing.T) {
	x := NewIndex()
	// Eight namespaces fill the 32 MiB, and a small one takes its share.
	for n := range 8 {
		fillNamespace(x, fmt.Sprint("tenant", n))
	}
	x.Add(newChange("small", "conf", 1, 1000))
	for n := 2; n < 200; n++ {
		for _, c := range x.Add(newChange("flood", fmt.Sprint("c", n), n, 100_000)) {
			// 10 namespaces share 32 MiB: 3,355,443 bytes each. Until the flood has 33 changes of 100,000
			// bytes, those with 4 MiB give way; then the flood takes its own.
			if floods := len(x.ListOfNamespace("flood")); c.Object.Namespace == "small" || c.Object.Namespace != "flood" && floods > 34 {
				t.Fatalf("the flood of %d changes displaces %s", floods, c.ID)
			}
		}
	}
	if floods := len(x.ListOfNamespace("flood")); floods < 30 {
		t.Errorf("the flood keeps %d changes, less than its share", floods)
	}
	for n := range 8 {
		if left := len(x.ListOfNamespace(fmt.Sprint("tenant", n))); left < 14 {
			t.Errorf("tenant%d has %d changes left", n, left)
		}
	}
	if keptIDs(x, "small", "conf") == nil || x.Bytes() > MaxBytes {
		t.Errorf("%d bytes are kept, of the small one %v", x.Bytes(), keptIDs(x, "small", "conf"))
	}
}

func TestTheOldestChangeIsFound(t *testing.T) {
	x := NewIndex()
	if x.FindOldest() != nil {
		t.Error("an empty index has an oldest change")
	}
	for _, n := range []int{3, 1, 2} {
		x.Add(newChange("shop", fmt.Sprint("c", n), n, 1))
	}
	for want := 1; want <= 3; want++ {
		c := x.FindOldest()
		if c == nil || c.Revision != fmt.Sprint(want) {
			t.Fatalf("the oldest is %+v, want revision %d", c, want)
		}
		x.Remove(c.ID)
		x.Remove(c.ID)
	}
	if x.FindOldest() != nil || x.Len() != 0 || x.Bytes() != 0 {
		t.Error("something is left")
	}
	c := newChange("shop", "web", 10, 1)
	if c.IsExpired(start.Add(69*time.Second), time.Minute) || !c.IsExpired(start.Add(70*time.Second), time.Minute) || !c.IsExpired(start.Add(10*time.Second), 0) {
		t.Error("a change expires when its window is over")
	}
}

// After any additions and removals, the counts are those of the kept changes, and the bounds hold.
func TestTheIndexKeepsItsBounds(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	x := NewIndex()
	for n := range 20_000 {
		c := newChange(fmt.Sprint("ns", r.Intn(12)), fmt.Sprint("c", r.Intn(300)), n, int64(r.Intn(1<<uint(r.Intn(21)))))
		if r.Intn(20) == 0 {
			if all := x.ListOfNamespace(c.Object.Namespace); len(all) > 0 {
				x.Remove(all[r.Intn(len(all))].ID)
			}
		}
		x.Add(c)
		if n%500 == 0 {
			checkBounds(t, x)
		}
	}
	checkBounds(t, x)
	if len(x.byTime) > 3*x.Len()+64 {
		t.Errorf("the queue has %d entries for %d changes", len(x.byTime), x.Len())
	}
}

func checkBounds(t *testing.T, x *Index) {
	t.Helper()
	var all int64
	changes := 0
	for name, ns := range x.namespaces {
		var bytes int64
		for key, o := range ns.objects {
			var own int64
			for _, c := range o.changes {
				own += c.Bytes
			}
			if own != o.bytes || own > MaxObjectBytes || len(o.changes) == 0 || len(o.changes) > MaxObjectChanges || !slices.IsSortedFunc(o.changes, compareChanges) {
				t.Fatalf("%s has %d changes of %d bytes, counted %d", key, len(o.changes), own, o.bytes)
			}
			bytes, changes = bytes+own, changes+len(o.changes)
		}
		if bytes != ns.bytes || bytes > MaxNamespaceBytes || ns.changes > MaxNamespaceChanges {
			t.Fatalf("%s has %d changes of %d bytes, counted %d", name, ns.changes, bytes, ns.bytes)
		}
		all += bytes
	}
	if all != x.Bytes() || all > MaxBytes || changes != x.Len() {
		t.Fatalf("%d changes of %d bytes, counted %d of %d", changes, all, x.Len(), x.Bytes())
	}
}
