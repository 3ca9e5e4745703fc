package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWorthDefragmenting(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size, inUse, written int64
		want                 bool
	}{
		"nothing to gain":        {1000 * mib, 990 * mib, 0, false},
		"half is free":           {1000 * mib, 400 * mib, 0, true},
		"half is free, but busy": {1000 * mib, 400 * mib, 10_000, false},
		"small":                  {40 * mib, 1 * mib, 0, false},
	} {
		if got := worthDefragmenting(c.size, c.inUse, c.written); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestDefragmentGivesSpaceBack(t *testing.T) {
	s := start(t, t.TempDir())
	c, err := s.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var revision int64
	for range 20 {
		put, err := c.Put(t.Context(), "k", strings.Repeat("x", 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		revision = put.Header.Revision
	}
	if _, err := c.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	before := s.Space()
	s.defragmentFile(t.Context(), c, before.StoreUsage)
	if after := s.Space(); after.FileBytes*2 > before.FileBytes {
		t.Errorf("%d bytes before and %d after", before.FileBytes, after.FileBytes)
	}
	if got, err := c.Get(t.Context(), "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the store does not serve: %v", err)
	}
}

// fillStore writes keys until maintenance makes no more room for any, and returns how many it wrote.
func fillStore(t *testing.T, s *EmbeddedEtcd, c *clientv3.Client, prefix string) (written int) {
	t.Helper()
	for last := -1; last != written; s.maintainSpaceSinceRevision(t.Context(), c, s.updateSpace(s.hasAlarm()), 0) {
		last = written
		for err := error(nil); err == nil; written++ {
			if written > 512 {
				t.Fatal("the quota does not hold")
			}
			_, err = c.Put(t.Context(), fmt.Sprint(prefix, written), strings.Repeat("x", 1<<18))
			if errors.Is(err, rpctypes.ErrNoSpace) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return written
}

// A full store refuses writes while maintenance finds no room, and takes them after the next
// maintenance that follows deletions. A full store that starts takes a few.
func TestFullStoreTakesWritesAgain(t *testing.T) {
	dir := t.TempDir()
	open := func() (*EmbeddedEtcd, *clientv3.Client) {
		t.Helper()
		s, err := Start(t.Context(), Options{Dir: dir, Logger: slog.New(slog.DiscardHandler), QuotaBytes: 32 << 20, UnsafeNoFsync: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		c, err := s.NewClient(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return s, c
	}
	s, c := open()
	var states []StoreSpaceState
	s.OnSpaceChange(func(now StoreSpace) { states = append(states, now.State) })
	stored := fillStore(t, s, c, "k")
	full := s.Space()
	if full.State != SpaceFull || full.Since.IsZero() {
		t.Fatalf("the state of a store that refuses writes: %+v", full)
	}
	if _, err := c.Put(t.Context(), "k0", "y"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write without room for it: %v", err)
	}
	got, err := c.Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count < int64(stored) { // etcd can store a write that it refuses
		t.Errorf("a full store shows %v of %d keys, %v", got, stored, err)
	}

	c.Close()
	s.Stop()
	s, c = open()
	if now := s.Space(); now.State != SpaceReserve || now.QuotaBytes != 32<<20 {
		t.Errorf("the state of a full store that starts: %+v", now)
	}
	if _, err := c.Put(t.Context(), "k0", "y"); err != nil {
		t.Errorf("a full store that starts takes no write: %v", err)
	}
	fillStore(t, s, c, "more")
	for _, prefix := range []string{"k", "more"} {
		if _, err := c.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
			t.Fatalf("a full store takes no deletion: %v", err)
		}
	}
	s.defragmented = time.Now().Add(-remeasureAfter) // by maintenance, while the store was filled
	s.maintainSpaceSinceRevision(t.Context(), c, s.updateSpace(s.hasAlarm()), 0)
	if now := s.Space(); now.State != SpaceFree || now.FileBytes > 2<<20 {
		t.Errorf("the state after deletions: %+v", now)
	}
	if _, err := c.Put(t.Context(), "k", "y"); err != nil {
		t.Errorf("it stays closed: %v", err)
	}
	if len(states) < 2 || states[0] != SpaceFree || states[len(states)-1] != SpaceFull {
		t.Errorf("the states that were reported: %v", states)
	}
}
