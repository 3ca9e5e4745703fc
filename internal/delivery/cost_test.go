package delivery

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// BenchmarkStreams measures 300 agents of 20 Bundles each that connect without content and
// receive everything: memory of both sides per session, renderings and encodings.
func BenchmarkStreams(b *testing.B) {
	const agents, bundles = 300, 20
	for b.Loop() {
		h := newTestHub(b)
		specs := map[string]atoll.RowSpec{}
		ids := make([]tls.Certificate, agents)
		for i := range agents {
			name := fmt.Sprintf("c%d", i)
			uid, id := h.createCluster(name)
			specs[name], ids[i] = activeSpec(uid, "r1", 1), id
		}
		for j := range bundles {
			h.rows.setRows(fmt.Sprintf("b%d", j), specs)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		var group errgroup.Group
		for i := range agents {
			group.Go(func() error { return h.fillRows(ids[i], bundles) })
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/agents/1024, "KiB-heap/stream")
		b.ReportMetric(float64(after.StackInuse-before.StackInuse)/agents/1024, "KiB-stack/stream")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/agents, "goroutines/stream")
		b.ReportMetric(float64(h.renders.Load())/bundles, "renders/bundle")
	}
}

// fillRows sends all bundles to an agent that holds nothing.
func (h *testHub) fillRows(id tls.Certificate, bundles int) error {
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: h.keys.ClusterCA.CertPool(), Certificates: []tls.Certificate{id},
	})), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithSharedWriteBuffer(true))
	if err != nil {
		return err
	}
	h.t.Cleanup(func() { conn.Close() })
	s, err := pb.NewSessionClient(conn).Connect(h.t.Context())
	if err != nil {
		return err
	}
	if err := s.Send(h.newAgent(id, "one").core.BeginSession()); err != nil {
		return err
	}
	for got := 0; got < bundles; {
		f, err := s.Recv()
		if err != nil {
			return err
		}
		if f.GetDigestQuery() != nil {
			if err := s.Send(&pb.FromAgent{Frame: &pb.FromAgent_Digest{Digest: &pb.Digest{Ranges: []*pb.Range{{Prefix: ""}}}}}); err != nil {
				return err
			}
		}
		if f.GetUpsert() != nil {
			got++
		}
	}
	return nil
}
