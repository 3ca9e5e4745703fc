package sharedcodes

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/testwait"
)

// openStores returns the stores of two hubs of one etcd.
func openStores(t *testing.T) (one, other *Store, client *clientv3.Client) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	if client, err = server.NewClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	one, other = &Store{}, &Store{}
	one.SetClient(client)
	other.SetClient(client)
	return one, other, client
}

func TestAHubTakesTheCodesOfAll(t *testing.T) {
	one, other, client := openStores(t)
	if err := one.PutCode(t.Context(), "a", "sealed", time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := other.TakeCode(t.Context(), "b"); err != nil || got != "" {
		t.Errorf("an unknown code stands for %q, %v", got, err)
	}
	if got, err := other.TakeCode(t.Context(), "a"); err != nil || got != "sealed" {
		t.Errorf("the code stands for %q, %v", got, err)
	}
	for name, s := range map[string]*Store{"the hub that made it": one, "the hub that took it": other} {
		if got, err := s.TakeCode(t.Context(), "a"); err != nil || got != "" {
			t.Errorf("%s takes it again: %q, %v", name, got, err)
		}
	}
	left, err := client.Get(t.Context(), "/atoll.dev/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count != 0 {
		t.Errorf("%v keys are left, %v", left, err)
	}
}

func TestOneOfManyTakesACode(t *testing.T) {
	one, other, _ := openStores(t)
	if err := one.PutCode(t.Context(), "a", "sealed", time.Minute); err != nil {
		t.Fatal(err)
	}
	var took atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if got, err := []*Store{one, other}[i%2].TakeCode(t.Context(), "a"); err == nil && got != "" {
				took.Add(1)
			}
		})
	}
	all.Wait()
	if took.Load() != 1 {
		t.Errorf("%d callers take the code", took.Load())
	}
}

// etcd deletes a code that is never used.
func TestACodeEnds(t *testing.T) {
	one, _, client := openStores(t)
	if err := one.PutCode(t.Context(), "a", "sealed", 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Fatalf("the leases are %v, %v", leases, err)
	}
	lease, err := client.TimeToLive(t.Context(), leases.Leases[0].ID, clientv3.WithAttachedKeys())
	if err != nil || lease.GrantedTTL < 2 || lease.GrantedTTL > 60 || len(lease.Keys) != 1 {
		t.Fatalf("the lease is %v, %v", lease, err)
	}
	testwait.UntilTrue(t, "the code is gone", func() bool {
		left, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && left.Count == 0
	})
}

func TestAStoreWithoutItsEtcd(t *testing.T) {
	var s Store
	if err := s.PutCode(t.Context(), "a", "sealed", time.Minute); !errors.Is(err, errStarting) {
		t.Error(err)
	}
	if _, err := s.TakeCode(t.Context(), "a"); !errors.Is(err, errStarting) {
		t.Error(err)
	}
}
