package measure

import (
	"bytes"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"atoll.dev/atoll/internal/testwait"
)

// dialQuietEtcd runs an etcd that serves the test alone, and commits nothing by itself.
func dialQuietEtcd(t *testing.T) *EtcdClient {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir) // a socket's path has at most 108 bytes
	client, peer := url.URL{Scheme: "unix", Host: "client:1"}, url.URL{Scheme: "unix", Host: "peer:1"}
	c := embed.NewConfig()
	c.Dir, c.UnsafeNoFsync, c.LogLevel = dir, true, "panic"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(testwait.HangLimit):
		t.Fatal("etcd is not ready after a minute")
	}
	e, err := dialEtcd(clientv3.Config{Context: t.Context(), Endpoints: []string{"unix:" + filepath.Join(dir, client.Host)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestTheSizeOfAQuietStoreIsWithoutItsHistory(t *testing.T) {
	client := dialQuietEtcd(t)
	value := string(bytes.Repeat([]byte("x"), 10<<10))
	for i := range 500 {
		if _, err := client.client.Put(t.Context(), fmt.Sprint("key", i%10), value); err != nil {
			t.Fatal(err)
		}
	}
	before, err := client.ReadSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.InUse < 2<<20 {
		t.Fatalf("%v bytes are in use before the history is deleted, want most of the 500 values of 10 KiB", before.InUse)
	}
	after, err := client.CompactAndReadSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.InUse > 1<<20 {
		t.Errorf("%v bytes are in use without the history, want at most ten values of 10 KiB and etcd's own pages", after.InUse)
	}
	if after.Revision != before.Revision {
		t.Errorf("reading the size moved the revision from %d to %d", before.Revision, after.Revision)
	}
}

func TestOnlyTheHubsOwnLeasesAreItsUpkeep(t *testing.T) {
	before := LeaseWrites{
		"compact_rev_key":                               1,
		"/registry/leases/kube-system/atoll-hub":        10,
		"/registry/leases/kube-system/atoll-gateway-a":  5,
		"/registry/leases/kube-system/atoll-gateway-b":  5,
		"/registry/leases/atoll-clusters/c1":            3,
		"/registry/leases/atoll-clusters/c2":            3,
		"/registry/leases/atoll-clusters/c3":            3,
		"/registry/leases/kube-system/another-client":   1,
		"/registry/leases/kube-system-2/atoll-hub":      1,
		"/registry/leases/kube-system/atoll-gateway-b2": 1,
	}
	now := LeaseWrites{
		"compact_rev_key":                               2,  // 1
		"/registry/leases/kube-system/atoll-hub":        14, // 4
		"/registry/leases/kube-system/atoll-gateway-a":  2,  // created again: 2
		"/registry/leases/kube-system/atoll-gateway-b2": 1,
		"/registry/leases/atoll-clusters/c1":            4, // 1
		"/registry/leases/atoll-clusters/c2":            3,
		"/registry/leases/atoll-clusters/new":           2, // 2
		"/registry/leases/kube-system/another-client":   3, // 2
		"/registry/leases/kube-system-2/atoll-hub":      2, // 1
	} // and gateway-b and c3 are deleted
	if own, others := now.WritesSince(before); own != 8 || others != 7 {
		t.Errorf("the hub wrote %v for itself and %v for others, want 8 and 7", own, others)
	}
}
