package etcd

import (
	"log/slog"
	"strings"
	"testing"

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
	c, err := s.Client(t.Context())
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
	before, err := c.Status(t.Context(), s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	s.defragment(t.Context(), c, before)
	after, err := c.Status(t.Context(), s.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	if after.DbSize*2 > before.DbSize {
		t.Errorf("%d bytes before and %d after", before.DbSize, after.DbSize)
	}
	if got, err := c.Get(t.Context(), "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the store does not serve: %v", err)
	}
}

func TestFullStoreTakesWritesAgain(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), QuotaBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c, err := s.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var revision int64
	for range 64 {
		put, putErr := c.Put(t.Context(), "k", strings.Repeat("x", 1<<20))
		if err = putErr; err != nil {
			break
		}
		revision = put.Header.Revision
	}
	if err == nil {
		t.Fatal("the quota does not hold")
	}
	status, err := c.Status(t.Context(), s.Endpoint())
	if err != nil || !isFull(t.Context(), c) {
		t.Fatalf("not full: %v %v", status, err)
	}
	s.reopen(t.Context(), c)
	if _, err := c.Put(t.Context(), "k", "y"); err == nil {
		t.Fatal("it took a write with no room for it")
	}
	if _, err := c.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s.defragment(t.Context(), c, status)
	s.reopen(t.Context(), c)
	if _, err := c.Put(t.Context(), "k", "y"); err != nil {
		t.Errorf("it stays closed: %v", err)
	}
}
