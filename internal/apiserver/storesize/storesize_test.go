package storesize

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"atoll.dev/atoll/internal/apiserver/etcd"
)

// read /metrics: how large the store is said to be, and whether anything is said of it.
func read(t *testing.T) (size float64, isReported bool) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_storage_size_bytes" {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

func TestTheSizeOfTheStoreIsTold(t *testing.T) {
	metrics.Register()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	client, err := server.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	PublishStoreSize(client)
	status, err := client.Status(t.Context(), server.ClientEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	if size, isReported := read(t); !isReported || size < float64(status.DbSize) {
		t.Errorf("the store has %d bytes and is reported to have %v, %t", status.DbSize, size, isReported)
	}
}

// store returns how large it is, or is stuck and says nothing.
type store struct {
	pb.UnimplementedMaintenanceServer
	stuck atomic.Bool
}

func (s *store) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	if s.stuck.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.StatusResponse{DbSize: 4711}, nil
}

// counting is a listener that counts connections.
type counting struct {
	net.Listener
	came atomic.Int64
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.came.Add(1)
	}
	return conn, err
}

// The store is not dialled for a reading, and one that is stuck holds none up for longer
// than it wants to wait.
func TestAStuckStoreHoldsUpNoReading(t *testing.T) {
	metrics.Register()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, etcd, server := &counting{Listener: raw}, &store{}, grpc.NewServer()
	pb.RegisterMaintenanceServer(server, etcd)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{raw.Addr().String()}, Context: t.Context(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	PublishStoreSize(client)
	// gRPC may dial more than once until the connection is there.
	dialled := int64(0)
	for range 3 {
		if size, isReported := read(t); !isReported || size != 4711 {
			t.Errorf("read %v, %t", size, isReported)
		}
		if dialled == 0 {
			dialled = listener.came.Load()
		}
	}
	etcd.stuck.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got, err := (storageSizeMonitor{client}).Monitor(ctx); err == nil {
		t.Errorf("it reported %+v", got)
	}
	if size, isReported := read(t); isReported {
		t.Errorf("a store without an answer is reported to have %v bytes", size)
	}
	if n := listener.came.Load(); n != dialled {
		t.Errorf("it was dialled %d times for readings", n-dialled)
	}
}
