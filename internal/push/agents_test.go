package push

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// nowhere is where these agents look for their hub, which is not what is asked here.
const nowhere = "127.0.0.1:1"

func agentOf(m *lightMember, name string) agent.Options {
	return agent.Options{
		GuardAnswers: newResponseMemoryBudget(allAnswersMost).newLimit().guardAnswers,
		MemberConfig: &rest.Config{Host: m.URL, BearerToken: "t", TLSClientConfig: rest.TLSClientConfig{CAData: []byte(m.caPEM())}},
		HubAddress:   nowhere, CAHash: "sha256:" + strings.Repeat("0", 64), Name: name, Token: trust.NewToken().RevealSecret(), Log: slog.New(slog.DiscardHandler),
	}
}

// strangeCredentials are of no hub.
type strangeCredentials struct{}

func (strangeCredentials) CAPins() []string { return []string{"sha256:" + strings.Repeat("0", 64)} }

func (strangeCredentials) NewVoucher(string, string) string { return trust.NewToken().RevealSecret() }

// roundTripper asks the next one.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAPanicInWhateverTheAgentAsksIsContained: of the requests that an agent makes, by whatever
// goroutine, each panics in one run of it; the agent ends, and the process does not.
func TestAPanicInWhateverTheAgentAsksIsContained(t *testing.T) {
	t.Parallel()
	var runs sync.WaitGroup
	for n := range 24 {
		runs.Go(func() {
			m := newLightMember()
			defer m.Close()
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			ctx = crash.ContainPanics(ctx, func(p *crash.Panic) { stop(p) })
			o := agentOf(m, fmt.Sprintf("m-%d", n))
			var asked atomic.Int64
			var at atomic.Pointer[string]
			o.MemberConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					if asked.Add(1) == int64(n+1) {
						what := r.Method + " " + r.URL.String()
						at.Store(&what)
						panic("in " + what)
					}
					return next.RoundTrip(r)
				})
			})
			over := make(chan error, 1)
			go func() {
				var err error
				defer func() { over <- err }()
				defer crash.RecoverContained(ctx)
				err = agent.RunAgent(ctx, o)
			}()
			select {
			case <-over:
			case <-time.After(testwait.HangLimit):
				t.Errorf("request %d: the agent still runs", n)
			}
			if at.Load() == nil {
				t.Errorf("request %d was not made", n)
				return
			}
			if p := crash.ContainedPanic(ctx); p == nil || p.Value != "in "+*at.Load() {
				t.Errorf("request %d, %s: ended by %v", n, *at.Load(), p)
			}
		})
	}
	runs.Wait()
}

// TestMain serves light members, for a process that measures agents, where that asks for them.
func TestMain(m *testing.M) {
	count, err := strconv.Atoi(os.Getenv(lightMembers))
	if err != nil {
		os.Exit(m.Run())
	}
	var all []reached
	for range count {
		m := newLightMember()
		all = append(all, reached{m.URL, m.caPEM()})
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the client is gone
}

// lightMembers is the variable that asks a test's process to be so many members.
const lightMembers = "ATOLL_TEST_LIGHT_MEMBERS"

// reached is how a member is reached.
type reached struct{ URL, CA string }

// newRemoteMembers runs members in a process of their own, and one more that takes connections and
// answers nothing.
func newRemoteMembers(tb testing.TB, count int) []reached {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", lightMembers, count))
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close() // which ends it
		_ = cmd.Wait() // however it does
	})
	var all []reached
	if err := json.NewDecoder(out).Decode(&all); err != nil {
		tb.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { silent.Close() })
	return append(all, reached{"https://" + silent.Addr().String(), all[0].CA})
}

// BenchmarkAgents runs so many agents, in each of whose members nothing is placed, without a
// hub to report to, beside one whose member answers nothing.
func BenchmarkAgents(b *testing.B) {
	for _, count := range []int{20, 300} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				members := newRemoteMembers(b, count)
				before := readMeasurements()
				begin := time.Now()
				_, works, stop := agentsOf(b, members)
				if err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
					return works() == count, nil
				}); err != nil {
					b.Fatalf("%d of %d agents work", works(), count)
				}
				b.ReportMetric(time.Since(begin).Seconds(), "s/until-all-work")
				after := readMeasurements()
				for what, n := range after {
					b.ReportMetric((n-before[what])/float64(count), what)
				}
				stop()
			}
		})
	}
}

// readMeasurements is what this process takes.
func readMeasurements() map[string]float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return map[string]float64{
		"goroutines/agent": float64(runtime.NumGoroutine()), "B-heap/agent": float64(m.HeapInuse), "B-stacks/agent": float64(m.StackInuse),
	}
}

// agentsOf members, real ones, until stop is called.
func agentsOf(tb testing.TB, members []reached) (w *world, works func() int, stop func()) {
	tb.Helper()
	w = newWorld(tb)
	var mu sync.Mutex
	working := map[string]bool{}
	s := New(Options{
		Clusters: w.clusters, Secrets: w.secrets, Hub: nowhere, Runner: "fleet@" + nowhere,
		Credentials: strangeCredentials{}, AllowedNetworks: loopbackAllowed.Allowed,
		Inventory: pushedFunc(func(uid string, p *clusterstatus.Pushed) {
			mu.Lock()
			defer mu.Unlock()
			if working[uid] = p != nil && p.Reason == atoll.ReasonAgentWorks; p == nil {
				delete(working, uid)
			}
		}),
		Log: slog.New(slog.DiscardHandler),
	})
	for i, m := range members {
		name := fmt.Sprintf("m-%d", i)
		secret, err := handshake.NewPushSecret(name, types.UID(name), handshake.Credentials{Server: m.URL, CA: m.CA, Token: "t"})
		if err != nil {
			tb.Fatal(err)
		}
		secret.Name = "push-" + name
		w.create(secret)
		w.clusters.put(name, name, pushed)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	works = func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, yes := range working {
			if yes {
				n++
			}
		}
		return n
	}
	return w, works, func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	}
}

// TestAMemberThatAnswersNothingDelaysNoRealAgent: of real agents, which share a process.
func TestAMemberThatAnswersNothingDelaysNoRealAgent(t *testing.T) {
	t.Parallel()
	const count = 20
	_, works, stop := agentsOf(t, newRemoteMembers(t, count))
	defer stop()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return works() == count, nil
	}); err != nil {
		t.Errorf("%d of %d agents work", works(), count)
	}
}

// newTroubledMembers are so many members that work, as many of which all take connections and answer
// nothing, and as many that are dead.
func newTroubledMembers(tb testing.TB, each int) []reached {
	tb.Helper()
	members := newRemoteMembers(tb, each)
	silent := members[each]
	for range each - 1 {
		members = append(members, silent)
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	_ = dead.Close() // nothing listens there any more
	for range each {
		members = append(members, reached{"https://" + dead.Addr().String(), silent.CA})
	}
	return members
}

// ofAgents are the goroutines that agents start, and their connections'.
func ofAgents() (stacks []string) {
	all := make([]byte, 64<<20)
	all = all[:runtime.Stack(all, true)]
	for one := range strings.SplitSeq(string(all), "\n\n") {
		for _, of := range []string{"atoll/internal/agent", "net/http.(*persistConn)", "net/http.(*http2", "golang.org/x/net/http2.", "google.golang.org/grpc"} {
			if strings.Contains(one, of) {
				stacks = append(stacks, one)
				break
			}
		}
	}
	return stacks
}

// awaitRemoval: all Clusters are; gives what is left beyond what was before, at last.
func awaitRemoval(tb testing.TB, w *world, count, before int) (left []string) {
	tb.Helper()
	for i := range count {
		w.clusters.dropCluster(fmt.Sprintf("m-%d", i))
	}
	_ = wait.PollUntilContextTimeout(tb.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		left = ofAgents()
		left = left[min(before, len(left)):]
		return len(left) == 0, nil
	})
	return left
}

// TestNothingIsLeftOfAgentsWhoseClustersGo, whether they worked, or their members answer
// nothing, or are dead.
func TestNothingIsLeftOfAgentsWhoseClustersGo(t *testing.T) {
	const each = 4
	members := newTroubledMembers(t, each)
	before := len(ofAgents())
	w, works, stop := agentsOf(t, members)
	defer stop()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return works() == each, nil
	}); err != nil {
		t.Fatalf("%d of %d agents work", works(), each)
	}
	if now := len(ofAgents()); now <= before+each {
		t.Fatalf("the goroutines of agents that work are not seen: %d, and %d before", now, before)
	}
	if left := awaitRemoval(t, w, len(members), before); len(left) > 0 {
		t.Errorf("%d goroutines are left, among them\n%s", len(left), left[0])
	}
}

// BenchmarkTroubledMembers runs so many agents of which a third has members that answer
// nothing, and a third dead ones, and takes all away again.
func BenchmarkTroubledMembers(b *testing.B) {
	const each = 67
	for b.Loop() {
		members := newTroubledMembers(b, each)
		before, goroutines := readMeasurements(), len(ofAgents())
		begin := time.Now()
		w, works, stop := agentsOf(b, members)
		if err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
			return works() == each, nil
		}); err != nil {
			b.Fatalf("%d of %d agents work", works(), each)
		}
		b.ReportMetric(time.Since(begin).Seconds(), "s/until-all-work")
		for what, n := range readMeasurements() {
			b.ReportMetric((n-before[what])/float64(len(members)), what)
		}
		b.ReportMetric(float64(len(awaitRemoval(b, w, len(members), goroutines))), "goroutines-left")
		stop()
	}
}
