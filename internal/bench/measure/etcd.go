package measure

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	socketName  = "client.sock"
	etcdTimeout = 30 * time.Second
	// steady is for how long the size must not change to be taken for final: freed
	// pages show with the next commits.
	steady = 3 * time.Second
)

// Etcd asks the etcd that a hub stores in.
type Etcd struct {
	client   *clientv3.Client
	endpoint string
}

// Size of a store.
type Size struct {
	// InUse bytes of the database, and Total ones of its file.
	InUse, Total float64
	// Revision counts every change since the store began.
	Revision int64
}

// DialEtcd reaches the etcd embedded in the hub of that data directory. The caller
// closes it.
func DialEtcd(ctx context.Context, dataDir string) (*Etcd, error) {
	// The path of a socket has little room, so the directory is opened.
	dir := filepath.Join(dataDir, "etcd")
	return dial(clientv3.Config{
		Context: ctx, Endpoints: []string{"passthrough:///hub"},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			d, err := os.Open(dir)
			if err != nil {
				return nil, err
			}
			defer d.Close()
			return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), socketName))
		})},
	})
}

// DialEtcdAt reaches the etcd that several hubs share, with the client's certificate
// in its directory. The caller closes it.
func DialEtcdAt(ctx context.Context, endpoint, dir string) (*Etcd, error) {
	files := transport.TLSInfo{
		TrustedCAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
	}
	tls, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the hubs' etcd: %w", err)
	}
	return dial(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, TLS: tls})
}

func dial(config clientv3.Config) (*Etcd, error) {
	config.DialTimeout, config.Logger = etcdTimeout, zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("reach the hub's etcd: %w", err)
	}
	return &Etcd{client: client, endpoint: config.Endpoints[0]}, nil
}

// Close the connection.
func (e *Etcd) Close() error { return e.client.Close() }

// Size now.
func (e *Etcd) Size(ctx context.Context) (Size, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	status, err := e.client.Status(ctx, e.endpoint)
	if err != nil {
		return Size{}, fmt.Errorf("ask the hub's etcd for its size: %w", err)
	}
	return Size{InUse: float64(status.DbSizeInUse), Total: float64(status.DbSize), Revision: status.Header.Revision}, nil
}

// Compacted forgets the history, and gives the size once it does not shrink any more.
func (e *Etcd) Compacted(ctx context.Context) (Size, error) {
	now, err := e.Size(ctx)
	if err != nil {
		return now, err
	}
	// The hub compacts too: that the revision is gone already is as good.
	_, _ = e.client.Compact(ctx, now.Revision, clientv3.WithCompactPhysical())
	last, since := now, time.Now()
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 5*etcdTimeout, true, func(ctx context.Context) (bool, error) {
		if now, err = e.Size(ctx); err != nil {
			return false, err
		}
		if now.InUse < last.InUse {
			last, since = now, time.Now()
		}
		return time.Since(since) >= steady, nil
	})
	if err != nil {
		return now, fmt.Errorf("wait for the hub's etcd to forget its history: %w", err)
	}
	return last, nil
}

// Upkeep is how often each Lease was written since it was made, by its key, and the mark
// that the hub leaves in its etcd when that forgets its history.
type Upkeep map[string]int64

const (
	leases    = "/registry/leases/"
	compacted = "compact_rev_key"
)

// hubLeases are the prefixes of keys of the hub's own: of the one that leads, and of each
// gateway. All other Leases are written for somebody else, clusters for instance.
var hubLeases = []string{leases + "kube-system/atoll-hub", leases + "kube-system/atoll-gateway-"}

// Upkeep until now.
func (e *Etcd) Upkeep(ctx context.Context) (Upkeep, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	u := Upkeep{}
	for prefix, options := range map[string][]clientv3.OpOption{leases: {clientv3.WithPrefix(), clientv3.WithKeysOnly()}, compacted: {clientv3.WithKeysOnly()}} {
		got, err := e.client.Get(ctx, prefix, options...)
		if err != nil {
			return nil, fmt.Errorf("read the Leases in the hub's etcd: %w", err)
		}
		for _, kv := range got.Kvs {
			u[string(kv.Key)] = kv.Version
		}
	}
	return u, nil
}

// Since counts the writes after before: those that the hub did for itself, and those of
// Leases that are not its own. One that was made anew counts from its beginning.
func (u Upkeep) Since(before Upkeep) (own, others float64) {
	add := func(key string, n int64) {
		if key == compacted || slices.ContainsFunc(hubLeases, func(p string) bool { return strings.HasPrefix(key, p) }) {
			own += float64(n)
		} else {
			others += float64(n)
		}
	}
	for key, version := range u {
		if was := before[key]; version >= was {
			version -= was
		}
		add(key, version)
	}
	for key := range before {
		if _, stays := u[key]; !stays {
			add(key, 1) // its deletion
		}
	}
	return own, others
}

// Keys counts what is below a prefix.
func (e *Etcd) Keys(ctx context.Context, prefix string) (int64, error) {
	got, err := e.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("count %s in the hub's etcd: %w", prefix, err)
	}
	return got.Count, nil
}

// Largest gives the key with the largest value below a prefix, and that value's size in
// bytes.
func (e *Etcd) Largest(ctx context.Context, prefix string) (string, float64, error) {
	const page = 50 // of values that may have a megabyte
	largest, size := "", 0
	end := clientv3.GetPrefixRangeEnd(prefix)
	for key := prefix; ; {
		got, err := e.client.Get(ctx, key, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return "", 0, fmt.Errorf("read %s from the hub's etcd: %w", prefix, err)
		}
		for _, kv := range got.Kvs {
			if len(kv.Value) > size {
				largest, size = string(kv.Key), len(kv.Value)
			}
		}
		if !got.More {
			return largest, float64(size), nil
		}
		key = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}
