package delivery

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/testwait"
)

// Environment of the benchmarks: idleClients marks the process that plays the agents,
// idleProfiles names a directory for profiles of the hub's side.
const (
	idleClients  = "ATOLL_TEST_IDLE_CLIENTS"
	idleProfiles = "ATOLL_TEST_IDLE_PROFILES"
)

// idleFleet is the input of the process of the agents.
type idleFleet struct {
	Address string
	CA      []byte
	Held    []session.Entry
	Agents  []idleAgent
}

type idleAgent struct{ Certificate, Key []byte }

// BenchmarkIdle measures what idle agents of ten Bundles each cost the hub: CPU to connect,
// memory per stream, and CPU for half a minute of keepalive. The agents run in another process.
func BenchmarkIdle(b *testing.B) {
	for _, agents := range []int{2000, 8000} {
		b.Run(strconv.Itoa(agents), func(b *testing.B) { benchmarkIdle(b, agents) })
	}
}

func benchmarkIdle(b *testing.B, agents int) {
	const bundles, watch = 10, 30 * time.Second
	for b.Loop() {
		h := newTestHub(b, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil)) })
		fleet := h.idleFleet(agents, bundles)
		before := currentResources()
		cpu := cpuTime()
		stopProfile := profileCPU(b, "connect")
		stop := fleet.startHub(b)
		testwait.UntilTrue(b, "all streams are up", func() bool { return len(h.sessions.listAll()) == agents })
		stopProfile()
		b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(agents), "cpu-µs/connect")
		after := currentResources()
		b.ReportMetric(kilobytesPer(after.heap-before.heap, agents), "KiB-heap/stream")
		b.ReportMetric(kilobytesPer(after.stack-before.stack, agents), "KiB-stack/stream")
		b.ReportMetric(kilobytesPer(after.resident-before.resident, agents), "KiB-resident/stream")
		b.ReportMetric(float64(after.goroutines-before.goroutines)/float64(agents), "goroutines/stream")
		profileMemory(b)
		stopProfile = profileCPU(b, "idle")
		from := time.Now()
		cpu = cpuTime()
		<-time.After(watch)
		stopProfile()
		b.ReportMetric((cpuTime()-cpu).Seconds()/time.Since(from).Seconds()*10_000/float64(agents), "cores/10k-streams")
		stop()
	}
}

// idleFleet makes clusters whose rows are all as wanted.
func (h *testHub) idleFleet(agents, bundles int) idleFleet {
	fleet := idleFleet{Address: h.addr, CA: h.keys.ClusterCA.CertPEM}
	specs := map[string]atoll.RowSpec{}
	for i := range agents {
		name := fmt.Sprintf("c%d", i)
		uid, id := h.createCluster(name)
		specs[name] = activeSpec(uid, "r1", 1)
		key, err := x509.MarshalPKCS8PrivateKey(id.PrivateKey)
		if err != nil {
			h.t.Fatal(err)
		}
		fleet.Agents = append(fleet.Agents, idleAgent{id.Certificate[0], key})
	}
	st := atoll.RowStatus{Generation: 1, Content: "r1", Seq: 1, State: atoll.RowReady, Applied: true, Total: 3, Ready: 3}
	for j := range bundles {
		bundle := fmt.Sprintf("b%d", j)
		h.rows.setRows(bundle, specs)
		h.rows.setStatus(bundle, st)
		fleet.Held = append(fleet.Held, session.Entry{Bundle: bundle, Generation: 1, Content: "r1", Status: session.StatusHash(st)})
	}
	return fleet
}

// startHub the process of the agents; stop ends it.
func (f idleFleet) startHub(t testing.TB) (stop func()) {
	t.Helper()
	in, lines, stop := startHelper(t, "TestIdleClients", idleClients)
	if err := json.NewEncoder(in).Encode(f); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() && lines.Text() != "all in step" {
	}
	return stop
}

// startHelper starts this program again as the named test, which variable marks; stop ends
// its input, and waits for it.
func startHelper(t testing.TB, test, variable string) (in io.Writer, lines *bufio.Scanner, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return to, bufio.NewScanner(out), func() {
		to.Close()
		io.Copy(io.Discard, out)
		cmd.Wait()
	}
}

// An idle session has one goroutine: stacks are most of the cost of a quiet fleet.
func TestIdleStreamsAreOneGoroutine(t *testing.T) {
	const agents = 5
	h := newTestHub(t)
	for i := range agents {
		_, id := h.createCluster(fmt.Sprintf("c%d", i))
		h.newAgent(id, "one").connectSession()
	}
	all := make([]byte, 8<<20)
	testwait.UntilTrue(t, "each stream has the goroutine of its connection and no other", func() bool {
		stacks := string(all[:runtime.Stack(all, true)])
		return strings.Count(stacks, "h2.(*serverConn).serve(") == agents && strings.Count(stacks, functionName((*agentSession).receiveFrames)+"(") == agents &&
			!strings.Contains(stacks, functionName((*agentSession).runSender)+"(") && !strings.Contains(stacks, "transport.(*http2Server)")
	})
}

// functionName returns the name by which stacks show the function.
func functionName(function any) string {
	return runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name()
}

// TestIdleClients is the process of the agents.
func TestIdleClients(t *testing.T) {
	if os.Getenv(idleClients) == "" {
		t.Skip("is run by benchmarks, in a process of its own")
	}
	var fleet idleFleet
	in := bufio.NewReader(os.Stdin)
	if err := json.NewDecoder(in).Decode(&fleet); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(fleet.CA)
	var group errgroup.Group
	group.SetLimit(32)
	for _, a := range fleet.Agents {
		group.Go(func() error { return a.connectIdle(t, fleet.Address, roots, fleet.Held) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("all in step")
	io.Copy(io.Discard, in)
}

// connectIdle an agent that holds what its rows want, once the session is in step.
func (a idleAgent) connectIdle(t *testing.T, address string, roots *x509.CertPool, held []session.Entry) error {
	key, err := x509.ParsePKCS8PrivateKey(a.Key)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{a.Certificate}, PrivateKey: key}},
	})), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithSharedWriteBuffer(true),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: session.KeepaliveAgentTime, Timeout: session.KeepaliveAgentTimeout, PermitWithoutStream: true}))
	if err != nil {
		return err
	}
	t.Cleanup(func() { conn.Close() })
	s, err := pb.NewSessionClient(conn).Connect(t.Context())
	if err != nil {
		return err
	}
	core := session.NewAgent(session.AgentOptions{Version: "test", Instance: rand.Text()}, session.Memory{Held: held})
	if err := s.Send(core.BeginSession()); err != nil {
		return err
	}
	f, err := s.Recv()
	if err != nil {
		return err
	}
	if f.GetWelcome() == nil {
		return fmt.Errorf("no Welcome but %v", f)
	}
	if err := s.Send(&pb.FromAgent{Frame: &pb.FromAgent_Inventory{Inventory: &pb.Inventory{
		KubernetesVersion: "v1.36.3", AgentVersion: "test", NodesTotal: 3, NodesReady: 3, MemberReady: true,
		Allocatable: map[string]string{"cpu": "12", "memory": "48Gi", "pods": "330"}, Requested: map[string]string{"cpu": "3", "memory": "4Gi", "pods": "30"},
	}}}); err != nil {
		return err
	}
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
		}
	}()
	return nil
}

// resourcesUsed by this process.
type resourcesUsed struct{ heap, stack, resident, goroutines int }

func currentResources() resourcesUsed {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resourcesUsed{int(m.HeapAlloc), int(m.StackInuse), residentBytes(), runtime.NumGoroutine()}
}

func residentBytes() int {
	var total, resident int
	raw, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		fmt.Sscan(string(raw), &total, &resident)
	}
	return resident * os.Getpagesize()
}

func kilobytesPer(bytes, n int) float64 { return float64(bytes) / float64(n) / 1024 }

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profileMemory of the hub's side, where that is asked for.
func profileMemory(t testing.TB) {
	dir := os.Getenv(idleProfiles)
	if dir == "" {
		return
	}
	for _, name := range []string{"heap", "goroutine"} {
		f, err := os.Create(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pprof.Lookup(name).WriteTo(f, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// profileCPU of the hub's side until stop is called, where that is asked for.
func profileCPU(t testing.TB, phase string) (stop func()) {
	dir := os.Getenv(idleProfiles)
	if dir == "" {
		return func() {}
	}
	f, err := os.Create(dir + "/" + phase)
	if err != nil {
		t.Fatal(err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		t.Fatal(err)
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}
}
