package etcd

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func start(t *testing.T, dir string) *EmbeddedEtcd {
	t.Helper()
	begin := time.Now()
	s, err := Start(t.Context(), Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(begin))
	t.Cleanup(s.Stop)
	return s
}

func TestWritesSurviveRestart(t *testing.T) {
	for name, dir := range map[string]string{
		"short": t.TempDir(),
		"long":  filepath.Join(t.TempDir(), strings.Repeat("long-path-element/", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, dir)
			c, err := s.NewClient(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			put, err := c.Put(t.Context(), "k", "v")
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			s.Stop()

			start(t, dir)
			other, closeOther, err := ConnectRunning(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer closeOther()
			got, err := other.Get(t.Context(), "k", clientv3.WithRev(put.Header.Revision))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "v" {
				t.Fatalf("got %v", got.Kvs)
			}
		})
	}
}
