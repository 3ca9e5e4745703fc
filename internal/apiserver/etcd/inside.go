package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// KV reads and writes keys within this process, through what serves clients that come by
// the socket, with its checks, its quota and its errors, but without gRPC in between,
// which is half of what a small write costs. Once Stop has been called it answers that
// the server has stopped.
func (s *EmbeddedEtcd) KV() clientv3.KV { return clientv3.NewKVFromKVClient(s.inside, nil) }

// inProcessKV carries calls to the server, none of which outlives it: a call of a closed backend
// panics.
type inProcessKV struct {
	kv pb.KVServer

	mu      sync.RWMutex // held for reading by each call that is under way
	stopped bool
}

// stop waits for the calls that are under way, and lets no other begin.
func (i *inProcessKV) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
}

func callInProcess[In, Out any](ctx context.Context, i *inProcessKV, in In, call func(context.Context, In) (*Out, error)) (*Out, error) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if i.stopped {
		return nil, rpctypes.ErrGRPCStopped
	}
	return call(ctx, in)
}

// Range implements pb.KVClient.
func (i *inProcessKV) Range(ctx context.Context, in *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	return callInProcess(ctx, i, in, i.kv.Range)
}

// Put implements pb.KVClient.
func (i *inProcessKV) Put(ctx context.Context, in *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	return callInProcess(ctx, i, in, i.kv.Put)
}

// DeleteRange implements pb.KVClient.
func (i *inProcessKV) DeleteRange(ctx context.Context, in *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	return callInProcess(ctx, i, in, i.kv.DeleteRange)
}

// Txn implements pb.KVClient.
func (i *inProcessKV) Txn(ctx context.Context, in *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	return callInProcess(ctx, i, in, i.kv.Txn)
}

// Compact implements pb.KVClient.
func (i *inProcessKV) Compact(ctx context.Context, in *pb.CompactionRequest, _ ...grpc.CallOption) (*pb.CompactionResponse, error) {
	return callInProcess(ctx, i, in, i.kv.Compact)
}
