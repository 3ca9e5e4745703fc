package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	socketName  = "client.sock"
	etcdTimeout = 30 * time.Second
	// steadyFor is the time without a change after which the size counts as final. It is
	// longer than the pause between two batches of a compaction.
	steadyFor = 5 * time.Second
	// leaseOfCommit is the time to live in seconds of a lease that is written for its commit
	// and revoked at once.
	leaseOfCommit = 60
)

// EtcdClient reads the etcd of a hub.
type EtcdClient struct {
	client   *clientv3.Client
	endpoint string
}

// StoreSize is the size of a store.
type StoreSize struct {
	// InUse is the bytes of the database in use, Total the bytes of its file.
	InUse, Total float64
	// Revision counts every change since the store began.
	Revision int64
}

// DialEtcd connects to the etcd embedded in the hub of that data directory. The caller
// closes the client.
func DialEtcd(ctx context.Context, dataDir string) (*EtcdClient, error) {
	// The path of a socket has little room, so the directory is opened.
	dir := filepath.Join(dataDir, "etcd")
	return dialEtcd(clientv3.Config{
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

// DialEtcdAt connects to the etcd that several hubs share, with the client certificate in
// its directory. The caller closes the client.
func DialEtcdAt(ctx context.Context, endpoint, dir string) (*EtcdClient, error) {
	files := transport.TLSInfo{
		TrustedCAFile: filepath.Join(dir, "ca.crt"), CertFile: filepath.Join(dir, "client.crt"), KeyFile: filepath.Join(dir, "client.key"),
	}
	tls, err := files.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the hubs' etcd: %w", err)
	}
	return dialEtcd(clientv3.Config{Context: ctx, Endpoints: []string{endpoint}, TLS: tls})
}

func dialEtcd(config clientv3.Config) (*EtcdClient, error) {
	config.DialTimeout, config.Logger = etcdTimeout, zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("reach the hub's etcd: %w", err)
	}
	return &EtcdClient{client: client, endpoint: config.Endpoints[0]}, nil
}

// Close closes the connection.
func (e *EtcdClient) Close() error { return e.client.Close() }

// ReadSize returns the present size.
func (e *EtcdClient) ReadSize(ctx context.Context) (StoreSize, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	status, err := e.client.Status(ctx, e.endpoint)
	if err != nil {
		return StoreSize{}, fmt.Errorf("read the size of the hub's etcd: %w", err)
	}
	return StoreSize{InUse: float64(status.DbSizeInUse), Total: float64(status.DbSize), Revision: status.Header.Revision}, nil
}

// CompactAndReadSize deletes the history and returns the size when it no longer shrinks.
// Pages count as free two commits after they are freed. A quiet hub commits nothing for
// minutes, so each reading follows commits of its own.
func (e *EtcdClient) CompactAndReadSize(ctx context.Context) (StoreSize, error) {
	now, err := e.ReadSize(ctx)
	if err != nil {
		return now, err
	}
	if err := e.compactHistory(ctx, now.Revision); err != nil {
		return now, err
	}
	last, since := now, time.Now()
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 5*etcdTimeout, true, func(ctx context.Context) (bool, error) {
		if err := e.forceCommit(ctx); err != nil {
			return false, err
		}
		if now, err = e.ReadSize(ctx); err != nil {
			return false, err
		}
		if now.InUse < last.InUse {
			last, since = now, time.Now()
		}
		return time.Since(since) >= steadyFor, nil
	})
	if err != nil {
		return now, fmt.Errorf("wait for the hub's etcd to compact its history: %w", err)
	}
	return last, nil
}

// forceCommit writes something that is no key, so that no revision counts it: etcd commits within
// 100 ms of a write.
func (e *EtcdClient) forceCommit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	lease, err := e.client.Grant(ctx, leaseOfCommit)
	if err != nil {
		return fmt.Errorf("write a lease into the hub's etcd: %w", err)
	}
	if _, err := e.client.Revoke(ctx, lease.ID); err != nil {
		return fmt.Errorf("revoke a lease in the hub's etcd: %w", err)
	}
	return nil
}

// compactHistory deletes the history up to the revision. It tries again after an error: a busy etcd answers
// some requests too late.
func (e *EtcdClient) compactHistory(ctx context.Context, revision int64) error {
	last := error(nil)
	err := wait.PollUntilContextTimeout(ctx, time.Second, 5*etcdTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = e.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return last == nil || errors.Is(last, rpctypes.ErrCompacted), nil // the hub compacts too
	})
	if err != nil {
		return fmt.Errorf("compact the hub's etcd: %w (last: %v)", err, last)
	}
	return nil
}

// LeaseWrites counts the writes of each Lease since its creation, by key. It also holds the
// hub's compaction mark.
type LeaseWrites map[string]int64

const (
	leasePrefix        = "/registry/leases/"
	compactRevisionKey = "compact_rev_key"
)

// hubLeases are the key prefixes of the hub's own Leases: the leader's, and one of each
// gateway. All other Leases are written for others, such as clusters.
var hubLeases = []string{leasePrefix + "kube-system/atoll-hub", leasePrefix + "kube-system/atoll-gateway-"}

// ReadLeaseWrites returns the present counts.
func (e *EtcdClient) ReadLeaseWrites(ctx context.Context) (LeaseWrites, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	u := LeaseWrites{}
	for prefix, options := range map[string][]clientv3.OpOption{leasePrefix: {clientv3.WithPrefix(), clientv3.WithKeysOnly()}, compactRevisionKey: {clientv3.WithKeysOnly()}} {
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

// WritesSince counts the writes after before: the hub's own, and those of other Leases. A
// Lease that was created again counts from its creation.
func (u LeaseWrites) WritesSince(before LeaseWrites) (own, others float64) {
	add := func(key string, n int64) {
		if key == compactRevisionKey || slices.ContainsFunc(hubLeases, func(p string) bool { return strings.HasPrefix(key, p) }) {
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

// CountKeys counts the keys below a prefix.
func (e *EtcdClient) CountKeys(ctx context.Context, prefix string) (int64, error) {
	got, err := e.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("count %s in the hub's etcd: %w", prefix, err)
	}
	return got.Count, nil
}

// LargestValue returns the key with the largest value below a prefix, and the size of the
// value in bytes.
func (e *EtcdClient) LargestValue(ctx context.Context, prefix string) (string, float64, error) {
	const page = 50 // values may have a megabyte
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
