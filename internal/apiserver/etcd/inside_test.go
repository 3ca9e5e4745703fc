package etcd

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Clients of the socket see writes within the process, and the reverse.
func TestKVWithinTheProcess(t *testing.T) {
	s := start(t, t.TempDir())
	client, err := s.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	kv := s.KV()
	create := func(value string) *clientv3.TxnResponse {
		t.Helper()
		resp, err := kv.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision("k"), "=", 0)).Then(clientv3.OpPut("k", value)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	made := create("v")
	if !made.Succeeded || create("w").Succeeded {
		t.Error("a key that is there was made again")
	}
	got, err := client.Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" || got.Kvs[0].ModRevision != made.Header.Revision {
		t.Errorf("the socket gives %v, %v, and it was made at %d", got, err, made.Header.Revision)
	}
	if _, err := client.Put(t.Context(), "k", "x"); err != nil {
		t.Fatal(err)
	}
	if got, err := kv.Get(t.Context(), "k", clientv3.WithSerializable()); err != nil || string(got.Kvs[0].Value) != "x" {
		t.Errorf("within the process: %v, %v", got, err)
	}
	if _, err := kv.Put(t.Context(), "k", strings.Repeat("x", 9<<20)); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
		t.Errorf("too much is answered with %v", err)
	}
}

// Calls that are under way when the server stops are answered, or refused; none meets a
// store that is closed.
func TestNoCallWithinTheProcessOutlivesTheServer(t *testing.T) {
	s := start(t, t.TempDir())
	kv := s.KV()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				_, err := kv.Get(t.Context(), "k", clientv3.WithSerializable())
				if err == nil {
					_, err = kv.Put(t.Context(), "k", "v")
				}
				if err != nil {
					if !errors.Is(err, rpctypes.ErrStopped) {
						t.Errorf("a call to a server that stops: %v", err)
					}
					return
				}
			}
		})
	}
	s.Stop()
	callers.Wait()
}
