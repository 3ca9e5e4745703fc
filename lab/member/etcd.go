package member

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// Socket names inside the member's directory, which is the working directory
// of the process. etcd needs host:port forms, hence the suffixes.
const (
	etcdClientSocket = "etcd-client.sock:0"
	etcdPeerSocket   = "etcd-peer.sock:0"
)

// startEtcd starts a single etcd server on Unix sockets in the working
// directory and returns once it serves. The caller closes it.
func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	client := url.URL{Scheme: "unix", Host: etcdClientSocket}
	peer := url.URL{Scheme: "unix", Host: etcdPeerSocket}
	cfg := embed.NewConfig()
	cfg.Name = "lab"
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	// Start errors of etcd are returned; its error log mostly reports listeners that were
	// closed on purpose.
	cfg.LogLevel = "panic"
	cfg.LogOutputs = []string{"stderr"}
	cfg.QuotaBackendBytes = 2 << 30
	cfg.SnapshotCount = 5000
	cfg.BackendBatchInterval = 20 * time.Millisecond
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd in %s did not start; if another process uses the directory, end it, else remove the directory: %w", cfg.Dir, err)
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err := <-server.Err():
		server.Close()
		return nil, fmt.Errorf("etcd in %s stopped while starting: %w", cfg.Dir, err)
	case <-ctx.Done():
		server.Close()
		return nil, fmt.Errorf("etcd in %s did not get ready: %w", cfg.Dir, ctx.Err())
	}
}
