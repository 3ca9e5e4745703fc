// Package storesize reports to /metrics how large the store is.
//
// Contract: the size is read over an existing connection of the hub. Upstream dials another one at
// each reading of /metrics, and waits 20 s for it: while the store is unreachable or slow, when
// people read metrics most, nothing could be read at all. A request ends with its context; an
// unknown size is left out of the reading. Requests may be concurrent. PublishStoreSize holds for the
// process, and the last call wins.
package storesize

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// PublishStoreSize publishes the size of the store that client is connected to, instead of what upstream's
// options have published.
func PublishStoreSize(client *clientv3.Client) {
	metrics.SetStorageMonitorGetter(func() ([]metrics.Monitor, error) { return []metrics.Monitor{storageSizeMonitor{client}}, nil })
}

// storageSizeMonitor reads the size from the store.
type storageSizeMonitor struct{ client *clientv3.Client }

// Monitor reads the store once.
func (m storageSizeMonitor) Monitor(ctx context.Context) (metrics.StorageMetrics, error) {
	status, err := pb.NewMaintenanceClient(m.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return metrics.StorageMetrics{}, fmt.Errorf("read the size of the store: %w", err)
	}
	return metrics.StorageMetrics{Size: status.GetDbSize()}, nil
}

// Close closes nothing: the connection is not the monitor's.
func (storageSizeMonitor) Close() error { return nil }
