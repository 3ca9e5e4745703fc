package store

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// heldBundle returns a Bundle with so many objects of so many bytes.
func heldBundle(uid string, objects, size int) Bundle {
	b := Bundle{}
	b.Holding.Manifest.Bundle = uid
	for i := range objects {
		b.Holding.Manifest.Items = append(b.Holding.Manifest.Items, atoll.RenderedItem{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("settings-%s-%d", uid, i)}, APIVersion: "v1", UID: "u",
			Object: []byte(`"` + strings.Repeat("x", size) + `"`), Hash: "h",
		})
	}
	return b
}

// A stored value counts until it is dropped, in this process and in the next one. A Bundle that would exceed the
// memory is refused, and what becomes smaller is not.
func TestStoredBundlesHaveOneBudget(t *testing.T) {
	_, config := newMember(t)
	s, _ := openStore(t, config, true)
	s.LimitMemory(1 << 20)
	for uid := range 4 {
		if err := s.PutBundle(t.Context(), heldBundle(fmt.Sprint(uid), 1, 200<<10)); err != nil {
			t.Fatal(err)
		}
	}
	used := s.memory.sum.totalBytes()
	for _, process := range []string{"the same process", "the next process"} {
		var full *MemoryFullError
		err := s.PutBundle(t.Context(), heldBundle("more", 1, 250<<10))
		if !errors.As(err, &full) || s.HasMemory(full) {
			t.Fatalf("%s: a Bundle over the budget is taken: %v", process, err)
		}
		if err := s.PutBundle(t.Context(), heldBundle("0", 1, 250<<10)); err != nil {
			t.Errorf("%s: a Bundle that grows within the budget is refused: %v", process, err)
		}
		if err := s.PutBundle(t.Context(), heldBundle("0", 1, 450<<10)); !errors.As(err, &full) {
			t.Errorf("%s: a Bundle that grows over the budget is taken: %v", process, err)
		}
		if err := s.PutBundle(t.Context(), heldBundle("0", 1, 200<<10)); err != nil {
			t.Errorf("%s: a Bundle that becomes smaller is refused: %v", process, err)
		}
		if s.memory.sum.totalBytes() != used {
			t.Errorf("%s: %d bytes are counted, %d before", process, s.memory.sum.totalBytes(), used)
		}
		s, _ = openStore(t, config, true)
		s.LimitMemory(1 << 20)
	}
	if s.LimitMemory(used / 2); s.PutBundle(t.Context(), heldBundle("0", 1, 100<<10)) != nil {
		t.Error("a Bundle that becomes smaller is refused while the budget is exceeded")
	}
	s.LimitMemory(1 << 20)
	var full *MemoryFullError
	if err := s.PutBundle(t.Context(), heldBundle("more", 1, 400<<10)); !errors.As(err, &full) {
		t.Fatalf("a Bundle over the budget is taken: %v", err)
	}
	if err := s.DropBundle(t.Context(), "1"); err != nil || !s.HasMemory(full) {
		t.Errorf("a Bundle that was dropped still counts: %v", err)
	}
}

// The removal of a Bundle that was refused is stored while the budget is full, up to a bound of its own.
func TestRemovalsHaveMemoryOfTheirOwn(t *testing.T) {
	_, config := newMember(t)
	s, _ := openStore(t, config, true)
	if err := s.PutBundle(t.Context(), heldBundle("a", 100, 10)); err != nil {
		t.Fatal(err)
	}
	s.LimitMemory(s.memory.sum.totalBytes())
	removal := func(i int) Bundle {
		b := heldBundle(fmt.Sprint(i), 0, 0)
		b.Holding.Manifest.Remove = true
		return b
	}
	var full *MemoryFullError
	if err := s.PutBundle(t.Context(), heldBundle("b", 0, 0)); !errors.As(err, &full) {
		t.Errorf("a Bundle is taken over the budget: %v", err)
	}
	stored := 0
	for ; stored < 1000 && s.PutBundle(t.Context(), removal(stored)) == nil; stored++ {
	}
	if stored < 10 || stored == 1000 {
		t.Errorf("%d removals are stored", stored)
	}
}

// Records are never refused. They take what is reserved for the objects of Bundles, and count beyond it.
func TestRecordsCountBeyondTheObjects(t *testing.T) {
	_, config := newMember(t)
	s, _ := openStore(t, config, true)
	if err := s.PutBundle(t.Context(), heldBundle("a", 100, 10)); err != nil {
		t.Fatal(err)
	}
	records := func(n int) []ownership.Record {
		out := make([]ownership.Record, n)
		for i := range out {
			out[i] = ownership.Record{
				Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint(i)}, UID: "u", Template: "t", Owner: "a", Applied: "h", Label: "a", Owned: "f",
				Claims: map[string]ownership.Claim{"a": {State: ownership.Wanted, Template: "t"}},
			}
		}
		return out
	}
	before := s.memory.sum.totalBytes()
	if err := s.PutRecords(t.Context(), "1", records(100)); err != nil || s.memory.sum.totalBytes() != before {
		t.Errorf("records of the objects count in addition: %d bytes, %d before; %v", s.memory.sum.totalBytes(), before, err)
	}
	s.LimitMemory(before + 1)
	if err := s.PutRecords(t.Context(), "1", records(1000)); err != nil || s.memory.sum.totalBytes() < before+1000*1024 {
		t.Errorf("%d bytes with a thousand records, %d before; %v", s.memory.sum.totalBytes(), before, err)
	}
	again, _ := openStore(t, config, true)
	if again.memory.sum != s.memory.sum {
		t.Errorf("the next process counts %+v, and this one %+v", again.memory.sum, s.memory.sum)
	}
}

// A Bundle takes no more memory than is counted for it, and a part of it is for what follows.
func TestTheBudgetIsTheMemoryOfContents(t *testing.T) {
	for _, size := range []int{10, 1 << 10, 10 << 10} {
		packed, weight, err := encodeValue(heldBundle("a", 2000, size))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC() // which empties the pools of buffers
		runtime.ReadMemStats(&before)
		var b Bundle
		left := memoryAllowance(maxDecoded)
		if err := decodeValue(packed, &b, &left); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		took, counted := int(after.HeapAlloc)-int(before.HeapAlloc), memoryCostOf(b, weight).totalBytes()
		if took > counted || took < counted/20 {
			t.Errorf("objects of %d bytes: %d bytes are counted, and %d taken", size, counted, took)
		}
		runtime.KeepAlive(b)
	}
}
