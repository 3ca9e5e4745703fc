// Package storesize tells /metrics how large the store is.
//
// Contract: the store is asked on a connection that the hub has anyway. Upstream dials
// another one at each reading of /metrics, and waits 20 s for it: while the store is away
// or slow, which is when people look, nothing could be read at all. Asking ends with
// its context; what is not known then is left out of the reading. It may be done
// concurrently. Publish holds for the process, and who calls last wins.
package storesize

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// Publish the size of the store that client is connected to, instead of what upstream's
// options have published.
func Publish(client *clientv3.Client) {
	metrics.SetStorageMonitorGetter(func() ([]metrics.Monitor, error) { return []metrics.Monitor{monitor{client}}, nil })
}

// monitor asks the store.
type monitor struct{ client *clientv3.Client }

// Monitor the store once.
func (m monitor) Monitor(ctx context.Context) (metrics.StorageMetrics, error) {
	status, err := pb.NewMaintenanceClient(m.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return metrics.StorageMetrics{}, fmt.Errorf("ask the store for its size: %w", err)
	}
	return metrics.StorageMetrics{Size: status.GetDbSize()}, nil
}

// Close nothing: the connection is not the monitor's.
func (monitor) Close() error { return nil }
